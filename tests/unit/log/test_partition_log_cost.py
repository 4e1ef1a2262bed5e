"""Ten thousand partitions must stay cheap: few bytes of memory each, and few open files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.ids import TopicPartition
from tests.measured import kept_bytes, least
from tests.unit.log.support import ProducerFields, append, batch_of, open_log

CONFIG = TopicConfig()
COUNT = 100
IDLE_BYTES_MAX = 5_000
ONCE_BUSY_BYTES_MAX = 10_000
OPEN_FILES = 40


def opened(directory: Path, files: OpenFiles, number: int) -> PartitionLog:
    tp = TopicPartition("orders", number)
    return open_log(files.disk, str(directory / str(tp)), tp=tp, files=files, config=CONFIG)


def write(log: PartitionLog, batches: int) -> None:
    start = log.log_end_offset
    for number in range(batches):
        append(log, batch_of(1, producer=ProducerFields(1, 0, start + number)))


def bytes_per_log(make: Callable[[], list[PartitionLog]], limit: int) -> float:
    return least(lambda: kept_bytes(make) / COUNT, limit)


def test_idle_partitions_cost_little_memory_and_few_files(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), OPEN_FILES)
    for number in range(COUNT):
        log = opened(tmp_path, files, number)
        write(log, 5)
        log.close(sync=False)
    idle = bytes_per_log(lambda: [opened(tmp_path, files, number) for number in range(COUNT)], IDLE_BYTES_MAX)
    assert idle < IDLE_BYTES_MAX
    assert len(files) <= OPEN_FILES


def test_partitions_that_were_busy_once_cost_little_memory(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), OPEN_FILES)

    def busy() -> list[PartitionLog]:
        logs = [opened(tmp_path, files, number) for number in range(COUNT)]
        for log in logs:
            write(log, 300)
        return logs

    assert bytes_per_log(busy, ONCE_BUSY_BYTES_MAX) < ONCE_BUSY_BYTES_MAX
    assert len(files) <= OPEN_FILES
