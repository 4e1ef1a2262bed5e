"""Batches written in one piece leave the log as if each had been appended alone, or nothing of them is there."""

from __future__ import annotations

import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode, StorageError
from ottla.wire.batch import read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, append, batch_of, check_indexes, open_log, read_all

DIRECTORY = "/data/orders-3"


def new_log(config: TopicConfig | None = None) -> tuple[CrashDisk, PartitionLog]:
    """A log with one batch: what comes first in a segment is always appended alone."""
    disk = CrashDisk()
    disk.makedirs(DIRECTORY)
    log = open_log(disk, DIRECTORY, config=config or TopicConfig())
    append(log, batch_of())
    append(log, batch_of())
    return disk, log


def append_run(log: PartitionLog, batches: list[bytearray], leader_epoch: int = 0) -> int | None:
    headers = [read_header(batch) for batch in batches]
    return log.append_run(bytearray(b"".join(batches)), headers, leader_epoch)


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> bytearray:
    return batch_of(count, producer=ProducerFields(producer_id, epoch, sequence))


def files_of(disk: CrashDisk, log: PartitionLog) -> dict[str, bytes]:
    log.close()
    return {name: disk.read(f"{DIRECTORY}/{name}") for name in disk.listdir(DIRECTORY)}


batches = st.builds(
    lambda count, value_bytes, later_ms: batch_of(count, value=b"v" * value_bytes, timestamp=NOW_MS + later_ms),
    st.integers(1, 5),
    st.integers(0, 3000),
    st.integers(-5, 5),
)


@given(st.lists(st.lists(batches, min_size=1, max_size=6), min_size=1, max_size=5))
def test_files_and_indexes_are_those_of_single_appends(runs: list[list[bytearray]]) -> None:
    (disk, log), (other_disk, other) = new_log(), new_log()
    for run in runs:
        expected = other.log_end_offset
        for batch in run:
            append(other, bytearray(batch))
        assert append_run(log, run) == expected
        assert log.log_end_offset == other.log_end_offset
        assert log.read(expected, 1, log.log_end_offset, True) is not None
    check_indexes(log)
    assert read_all(log) == read_all(other)
    assert files_of(disk, log) == files_of(other_disk, other)


def test_a_new_epoch_begins_with_the_first_batch() -> None:
    _, log = new_log()
    assert append_run(log, [batch_of(), batch_of(2)], leader_epoch=4) == 2
    assert log.epochs.latest == 4
    assert log.epochs.end_offset_for(0, log.log_end_offset) == (0, 2)


def test_producers_are_noted_one_after_the_other() -> None:
    _, log = new_log()
    run = [idempotent(0, 2), idempotent(0, producer_id=8), batch_of(), idempotent(2), idempotent(3, 3)]
    assert append_run(log, run) == 2
    assert append(log, idempotent(2)) == (6, 6, -1, True)
    assert append(log, idempotent(0, producer_id=8)) == (4, 4, -1, True)
    assert append_run(log, [idempotent(6)]) == 10
    with pytest.raises(ApiError) as refused:
        append(log, idempotent(9))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    _, log = new_log()
    assert append_run(log, [idempotent(2**31 - 2, 2), idempotent(0)]) == 2
    assert append_run(log, [idempotent(1), idempotent(2)]) == 5


@pytest.mark.parametrize(
    "run",
    [
        pytest.param([idempotent(2), idempotent(1)], id="repeated"),
        pytest.param([idempotent(5)], id="gap"),
        pytest.param([idempotent(2), idempotent(4)], id="gap inside"),
        pytest.param([idempotent(2), idempotent(2)], id="twice"),
        pytest.param([batch_of(), idempotent(0, epoch=1), idempotent(3)], id="two epochs"),
        pytest.param([idempotent(3, epoch=0, producer_id=9)], id="fenced"),
    ],
)
def test_what_a_producer_may_not_write_next_leaves_the_whole_run_out(run: list[bytearray]) -> None:
    _, log = new_log()
    append(log, idempotent(0, 2))
    append(log, idempotent(0, producer_id=9, epoch=3))
    before = read_all(log)
    assert append_run(log, run) is None
    assert (log.log_end_offset, read_all(log)) == (5, before)
    assert append_run(log, [idempotent(2)]) == 5


def test_what_does_not_fit_the_segment_is_left_out() -> None:
    _, log = new_log(TopicConfig(segment_bytes=1000))
    run = [batch_of(value=b"v" * 300) for _ in range(3)]
    assert append_run(log, run) is None
    assert append_run(log, run[:2]) == 2
    assert len(log.segments) == 1


def test_nor_what_is_too_young_for_it() -> None:
    _, log = new_log(TopicConfig(segment_ms=1000))
    assert append_run(log, [batch_of(), batch_of(timestamp=NOW_MS + 5000)]) is None
    assert append_run(log, [batch_of(), batch_of(timestamp=NOW_MS + 500)]) == 2


def test_nor_what_might_fill_the_index() -> None:
    _, log = new_log(TopicConfig(segment_index_bytes=48, index_interval_bytes=0))
    assert append_run(log, [batch_of() for _ in range(4)]) is None
    assert log.log_end_offset == 2


def test_nor_what_the_broker_stamps() -> None:
    _, log = new_log(TopicConfig(timestamp_type_log_append=True))
    assert append_run(log, [batch_of()]) is None


def test_a_full_disk_leaves_nothing_of_the_run() -> None:
    disk, log = new_log()
    before = read_all(log)
    disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ApiError) as refused:
        append_run(log, [idempotent(0), idempotent(1)])
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail_writes = lambda size: None
    assert (read_all(log), log.active.log.get().size()) == (before, log.active.size)
    assert append_run(log, [idempotent(0), idempotent(1)]) == 2


def test_a_failing_disk_takes_its_directory_out() -> None:
    disk, log = new_log()
    disk.fail_writes = lambda size: OSError(errno.EIO, "Input/output error")
    with pytest.raises(StorageError):
        append_run(log, [batch_of()])
    assert log.log_end_offset == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_leaves_whole_batches_from_the_first_on(seed: int) -> None:
    disk, log = new_log()
    log.sync_until(log.log_end_offset)
    runs = [[batch_of(count, value=b"v" * 200) for count in range(1, 5)] for _ in range(5)]
    for run in runs:
        assert append_run(log, run) is not None
    written = read_all(log)
    crashed = disk.crash(Random(seed))
    found = read_all(open_log(crashed, DIRECTORY, clean=False, recovery_point=2))
    assert 2 <= len(found) <= len(written)
    assert found == written[: len(found)]
