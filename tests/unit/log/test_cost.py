"""Ten thousand partitions must stay cheap: few bytes of memory each, and no files while they are idle."""

from __future__ import annotations

import gc
import tracemalloc

from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.ids import TopicPartition
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, append, batch_of, open_log

IDLE_BYTES_MAX = 5_000
ONCE_BUSY_BYTES_MAX = 10_000


def opened(disk: CrashDisk, files: OpenFiles, number: int) -> PartitionLog:
    tp = TopicPartition("orders", number)
    return open_log(disk, f"/data/{tp}", tp=tp, files=files, config=CONFIG)


CONFIG = TopicConfig()


def test_idle_partitions_cost_little_memory() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    files = OpenFiles(disk, 100)
    for number in range(200):
        log = opened(disk, files, number)
        append(log, batch_of(5, producer=ProducerFields(1, 0, 0)))
        log.close()
    gc.collect()
    tracemalloc.start()
    try:
        logs = [opened(disk, files, number) for number in range(200)]
        gc.collect()
        idle = tracemalloc.get_traced_memory()[0] / len(logs)
    finally:
        tracemalloc.stop()
    assert idle < IDLE_BYTES_MAX
    assert len(files) <= 100


def test_partitions_that_were_busy_once_cost_little_memory() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    files = OpenFiles(disk, 100)
    logs = [opened(disk, files, number) for number in range(50)]
    batch = batch_of(1)
    fed = [ProducerFields(1, 0, sequence) for sequence in range(400)]
    for log in logs:
        append(log, batch_of(1))
    gc.collect()
    tracemalloc.start()
    try:
        for log in logs:
            for fields in fed:
                append(log, batch_of(1, producer=fields))
        gc.collect()
        written = sum(inode_bytes(disk)) / len(logs)
        busy = tracemalloc.get_traced_memory()[0] / len(logs) - written
    finally:
        tracemalloc.stop()
    assert busy < ONCE_BUSY_BYTES_MAX, (busy, written, len(batch), NOW_MS)


def inode_bytes(disk: CrashDisk) -> list[int]:
    """What the disk in memory holds itself: it is no part of the logs."""
    return [0 for _ in disk.files]
