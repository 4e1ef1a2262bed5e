"""Old records go when they may, and never sooner; what was cut off stays cut off."""

from __future__ import annotations

import errno

import pytest

from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode, OutOfSpaceError
from ottla.wire.batch import read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, append, batch_of, check_indexes, open_log, read_all

DIRECTORY = "/data/orders-3"


def log_of_segments(count: int, **config: int) -> tuple[CrashDisk, PartitionLog]:
    """Segments of ten offsets, a second apart, each with a batch of a producer of its own; the last one is empty."""
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, DIRECTORY, config=TopicConfig(**config))  # type: ignore[arg-type]
    for number in range(count):
        first = batch_of(4, timestamp=NOW_MS + 1000 * number, producer=ProducerFields(number, 0, 0))
        append(log, first, leader_epoch=number)
        append(log, batch_of(6, timestamp=NOW_MS + 1000 * number), leader_epoch=number)
        log.roll(NOW_MS)
    return disk, log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_retention_by_time_lets_the_oldest_segments_go() -> None:
    disk, log = log_of_segments(4, retention_ms=10_000)
    assert log.retention_candidates(NOW_MS + 10_005) == []
    candidates = log.retention_candidates(NOW_MS + 11_006)
    assert [segment.base_offset for segment in candidates] == [0, 10]
    dropped = log.drop_segments(candidates)
    assert bases(log) == [20, 30, 40]
    assert log.log_start_offset == 20
    assert sum(name.endswith(".deleted") for name in disk.listdir(DIRECTORY)) == 6
    log.delete_files(dropped)
    gone = (f"{0:020d}", f"{10:020d}")
    assert not [name for name in disk.listdir(DIRECTORY) if name.startswith(gone)]


def test_retention_begins_a_new_segment_before_the_last_one_goes() -> None:
    disk, log = log_of_segments(1, retention_ms=10)
    append(log, batch_of(5, timestamp=NOW_MS))
    candidates = log.retention_candidates(NOW_MS + 10_000)
    log.delete_files(log.drop_segments(candidates))
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([15], 15, 15)
    assert append(log, batch_of(1)).base_offset == 15
    log.close()
    assert open_log(disk, DIRECTORY).log_end_offset == 16


def test_retention_makes_room_on_a_disk_that_is_too_full_for_a_new_segment() -> None:
    disk, log = log_of_segments(3, retention_ms=10)
    append(log, batch_of(5, timestamp=NOW_MS))
    disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
    candidates = log.retention_candidates(NOW_MS + 10**6)
    log.delete_files(log.drop_segments(candidates))
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([30], 30, 35)
    with pytest.raises(OutOfSpaceError):
        log.retention_candidates(NOW_MS + 10**6)
    disk.fail_writes = lambda size: None
    log.drop_segments(log.retention_candidates(NOW_MS + 10**6))
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([35], 35, 35)


def test_retention_stops_at_the_high_watermark() -> None:
    _, log = log_of_segments(3, retention_ms=10)
    assert [s.base_offset for s in log.retention_candidates(NOW_MS + 10**6, high_watermark=15)] == [0]


def test_only_the_oldest_segments_may_be_dropped() -> None:
    _, log = log_of_segments(3)
    with pytest.raises(ValueError, match="oldest"):
        log.drop_segments(log.segments[1:2])
    with pytest.raises(ValueError, match="oldest"):
        log.drop_segments(log.segments)
    assert bases(log) == [0, 10, 20, 30]


def test_deleted_records_are_gone_and_stay_gone() -> None:
    disk, log = log_of_segments(3)
    log.delete_files(log.delete_records_before(15))
    assert (bases(log), log.log_start_offset) == ([10, 20, 30], 15)
    assert [entry.start_offset for entry in log.epochs.entries] == [15, 20]
    assert log.delete_records_before(12) == []
    assert log.log_start_offset == 15
    for offset in (-1, 31):
        with pytest.raises(ApiError) as error:
            log.delete_records_before(offset)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()
    assert open_log(disk, DIRECTORY, log_start_offset=15).log_start_offset == 15
    # The checkpoint may be older than the segments.
    assert open_log(disk, DIRECTORY, log_start_offset=3).log_start_offset == 10


def test_all_records_may_be_deleted_and_the_log_goes_on() -> None:
    disk, log = log_of_segments(2)
    append(log, batch_of(5))
    log.delete_files(log.delete_records_before(25))
    assert (log.log_start_offset, log.log_end_offset) == (25, 25)
    assert log.read(25, 100, 25, True) is None
    assert append(log, batch_of(1)).base_offset == 25
    log.close()
    again = open_log(disk, DIRECTORY, log_start_offset=25)
    assert (again.log_start_offset, again.log_end_offset) == (25, 26)


def test_a_crash_before_the_files_are_removed_leaves_no_rubbish() -> None:
    disk, log = log_of_segments(3)
    log.delete_records_before(20)
    after = disk.crash_with_everything()
    reopened = open_log(after, DIRECTORY, clean=False, log_start_offset=20)
    assert bases(reopened) == [20, 30]
    assert not [name for name in after.listdir(DIRECTORY) if name.endswith(".deleted")]


@pytest.mark.parametrize("offset", [30, 25, 24, 20, 17, 14, 10, 5, 1])
def test_truncation_cuts_everything_from_an_offset_on(offset: int) -> None:
    disk, log = log_of_segments(3)
    log.sync_until(30)
    log.mark_flushed(30)
    before = read_all(log)
    kept = [batch for batch in before if read_header(batch).last_offset < offset]
    end = read_header(kept[-1]).last_offset + 1 if kept else 0
    log.delete_files(log.truncate_to(offset))
    assert log.log_end_offset == end
    assert read_all(log) == kept
    check_indexes(log)
    assert log.recovery_point == min(30, end)
    known = {producer.producer_id for producer in log.producers.active_producers()}
    assert known == {number for number in range(3) if number * 10 < end}
    assert all(entry.start_offset < max(end, 1) for entry in log.epochs.entries)
    append(log, batch_of(2), leader_epoch=9)
    assert log.epochs.epoch_of(end) == 9
    log.close()
    assert read_all(open_log(disk, DIRECTORY))[:-1] == kept


def test_truncation_beyond_the_end_does_nothing() -> None:
    _, log = log_of_segments(2)
    assert log.truncate_to(99) == []
    assert log.log_end_offset == 20


def test_a_follower_can_begin_anew_at_its_leaders_start() -> None:
    disk, log = log_of_segments(2)
    log.delete_files(log.truncate_fully_and_start_at(500))
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([500], 500, 500)
    assert (len(log.producers), log.epochs.entries) == (0, ())
    append(log, batch_of(1))
    log.close()
    again = open_log(disk, DIRECTORY, log_start_offset=500)
    assert (again.log_start_offset, again.log_end_offset) == (500, 501)
    assert not [name for name in disk.listdir(DIRECTORY) if name.startswith("0000000000000000000")]


def test_a_log_cut_before_its_first_segment_begins_there() -> None:
    _, log = log_of_segments(3)
    log.delete_records_before(20)
    log.truncate_to(15)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (15, 15, [15])


def test_closing_an_idle_log_again_writes_nothing() -> None:
    disk, log = log_of_segments(2)
    log.close()
    again = open_log(disk, DIRECTORY)
    disk.fail_writes = lambda size: OSError("nothing may be written")
    disk.fail_syncs = lambda: OSError("nothing may be synced")
    again.close()
