"""Writing to a log: offsets, segments, and what happens when the disk does not play along."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import pytest

from ottla.log.disk import RealDisk
from ottla.log.partition_log import Appended, PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode, StorageError
from ottla.wire.batch import check, crc_matches, read_header
from ottla.wire.records import iterate
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import (
    NOW_MS,
    ProducerFields,
    append,
    batch_of,
    check_indexes,
    marker_of,
    open_log,
    read_all,
    read_bytes,
)

DIRECTORY = "/data/orders-3"


def memory_log(**config: int | bool) -> tuple[CrashDisk, PartitionLog]:
    disk = CrashDisk()
    disk.makedirs("/data")
    return disk, open_log(disk, DIRECTORY, config=TopicConfig(**config))  # type: ignore[arg-type]


def raises(code: ErrorCode) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def test_a_batch_gets_its_offset_and_epoch_and_is_otherwise_untouched(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path / "orders-3"))
    sent = batch_of(3)
    kept = bytes(sent)
    assert append(log, batch_of(2), leader_epoch=4) == Appended(0, 1, -1, False)
    assert append(log, sent, leader_epoch=4) == Appended(2, 4, -1, False)
    stored = read_bytes(log.read(2, 1 << 20, 5, True))
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 4)
    assert crc_matches(memoryview(stored), header)
    assert stored[16:] == kept[16:]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 5, log.active.size)
    assert log.max_timestamp == NOW_MS + 2


def test_the_files_are_where_kafka_has_them(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    topic_id = UUID(int=77)
    log = open_log(RealDisk(), str(directory), topic_id=topic_id)
    append(log, batch_of(2))
    log.roll(NOW_MS)
    log.close()
    assert sorted(path.name for path in directory.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.index",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert open_log(RealDisk(), str(directory)).topic_id == topic_id


def test_a_directory_of_another_topic_is_not_taken_over(tmp_path: Path) -> None:
    directory = str(tmp_path / "orders-3")
    open_log(RealDisk(), directory, topic_id=UUID(int=1)).close()
    with raises(ErrorCode.INCONSISTENT_TOPIC_ID):
        open_log(RealDisk(), directory, topic_id=UUID(int=2))


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path / "t-0"), config=TopicConfig(timestamp_type_log_append=True))
    assert append(log, batch_of(2, timestamp=5), now_ms=NOW_MS) == Appended(0, 1, NOW_MS, False)
    (stored,) = read_all(log)
    assert [record.timestamp for record in iterate(stored)] == [NOW_MS, NOW_MS]
    assert log.max_timestamp == NOW_MS


def test_a_repeated_batch_is_answered_with_its_first_offsets() -> None:
    _, log = memory_log()
    append(log, batch_of(5))
    first = append(log, batch_of(3, producer=ProducerFields(1, 0, 0)))
    append(log, batch_of(2, producer=ProducerFields(1, 0, 3)))
    assert append(log, batch_of(3, producer=ProducerFields(1, 0, 0))) == first._replace(duplicate=True)
    assert log.log_end_offset == 10
    with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append(log, batch_of(1, producer=ProducerFields(1, 0, 99)))
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH):
        append(log, batch_of(1, producer=ProducerFields(1, -1, 5)))


def test_producers_are_known_after_a_restart() -> None:
    disk, log = memory_log()
    append(log, batch_of(3, producer=ProducerFields(1, 0, 0)))
    log.close()
    log = open_log(disk, DIRECTORY)
    assert append(log, batch_of(3, producer=ProducerFields(1, 0, 0))).duplicate
    assert append(log, batch_of(1, producer=ProducerFields(1, 0, 3))) == Appended(3, 3, -1, False)


def test_a_producer_that_was_idle_for_long_is_forgotten_at_start() -> None:
    disk, log = memory_log()
    append(log, batch_of(3, timestamp=NOW_MS - 86_400_010, producer=ProducerFields(1, 0, 0)))
    append(log, batch_of(3, timestamp=NOW_MS - 1000, producer=ProducerFields(2, 0, 0)))
    log.close()
    log = open_log(disk, DIRECTORY)
    assert [producer.producer_id for producer in log.producers.active_producers()] == [2]


def test_a_marker_ends_a_transaction_and_the_restart_knows_the_open_one() -> None:
    disk, log = memory_log()
    append(log, batch_of(2, producer=ProducerFields(1, 0, 0), transactional=True))
    append(log, batch_of(2, producer=ProducerFields(2, 0, 0), transactional=True))
    assert log.producers.first_unstable_offset == 0
    append(log, marker_of(1, 0, commit=True, coordinator_epoch=3))
    log.producers.on_high_watermark(log.log_end_offset)
    assert log.producers.first_unstable_offset == 2
    with raises(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        append(log, marker_of(1, 0, commit=True, coordinator_epoch=2))
    log.close()
    assert open_log(disk, DIRECTORY).producers.first_unstable_offset == 2
    unclean = open_log(disk.crash_with_everything(), DIRECTORY, clean=False).producers
    unclean.on_high_watermark(5)
    assert unclean.first_unstable_offset == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_refuses_the_batch_and_keeps_the_log_whole(code: int) -> None:
    disk, log = memory_log()
    append(log, batch_of(2, producer=ProducerFields(1, 0, 0)))
    size = log.active.size
    disk.fail_writes = lambda size: OSError(code, "No space left on device") if size > 60 else None
    with pytest.raises(ApiError, match="no space left") as refused:
        append(log, batch_of(2, producer=ProducerFields(1, 0, 2)))
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.active.size, log.active.log.get().size()) == (2, size, size)
    disk.fail_writes = lambda size: None
    assert append(log, batch_of(2, producer=ProducerFields(1, 0, 2))).base_offset == 2
    assert len(read_all(log)) == 2


def test_a_disk_that_is_full_at_a_roll_leaves_the_old_segment_in_use() -> None:
    disk, log = memory_log(segment_bytes=200)
    append(log, batch_of(5))
    disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ApiError, match="no space left"):
        append(log, batch_of(5))
    assert (len(log.segments), log.log_end_offset) == (1, 5)
    disk.fail_writes = lambda size: None
    append(log, batch_of(5))
    assert (len(log.segments), log.log_end_offset) == (2, 10)
    assert sorted(disk.listdir(DIRECTORY)).count("00000000000000000005.log") == 1


def test_a_failing_disk_takes_its_directory_out() -> None:
    disk, log = memory_log()
    disk.fail_writes = lambda size: OSError(errno.EIO, "Input/output error")
    with pytest.raises(StorageError, match="Input/output error") as failure:
        append(log, batch_of())
    assert failure.value.directory == "/data"


def test_a_failed_sync_is_final_and_moves_nothing() -> None:
    disk, log = memory_log()
    append(log, batch_of(3))
    disk.fail_syncs = lambda: OSError(errno.EIO, "Input/output error")
    with pytest.raises(StorageError, match="Input/output error"):
        log.sync_until(3)
    assert log.recovery_point == 0


def test_segments_are_rolled_by_size_and_the_index_fits_the_config() -> None:
    _, log = memory_log(segment_bytes=1000, index_interval_bytes=100)
    for _ in range(40):
        append(log, batch_of(2))
    assert len(log.segments) > 3
    assert all(segment.size <= 1000 for segment in log.segments)
    assert all(segment.indexes.offsets.count >= 3 for segment in log.segments[:-1])
    check_indexes(log)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    _, log = memory_log(segment_bytes=200)
    with raises(ErrorCode.RECORD_LIST_TOO_LARGE):
        append(log, batch_of(20))
    assert append(log, batch_of(1)).base_offset == 0


def test_segments_are_rolled_by_the_time_of_their_records() -> None:
    _, log = memory_log(segment_ms=1000)
    append(log, batch_of(1, timestamp=NOW_MS))
    append(log, batch_of(1, timestamp=NOW_MS + 1000))
    assert len(log.segments) == 1
    assert not log.roll_due(NOW_MS + 1000)
    assert log.roll_due(NOW_MS + 1001)
    append(log, batch_of(1, timestamp=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segments_of_records_without_a_time_are_rolled_by_the_clock() -> None:
    _, log = memory_log(segment_ms=1000)
    append(log, batch_of(1, timestamp=-1), now_ms=NOW_MS)
    append(log, batch_of(1, timestamp=-1), now_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, batch_of(1, timestamp=-1), now_ms=NOW_MS + 1001)
    assert len(log.segments) == 2
    assert log.segments[0].max_timestamp == -1


def test_jitter_rolls_earlier_and_not_all_at_once() -> None:
    seen = set()
    for base in range(20):
        disk = CrashDisk()
        disk.makedirs("/data")
        config = TopicConfig(segment_ms=1000, segment_jitter_ms=500)
        log = open_log(disk, DIRECTORY, config=config, log_start_offset=base)
        append(log, batch_of(1, timestamp=NOW_MS))
        seen.add(next(wait for wait in range(1100) if log.roll_due(NOW_MS + wait)))
    assert len(seen) > 10
    assert 500 < min(seen) <= max(seen) <= 1001


def test_a_full_index_rolls_the_segment() -> None:
    _, log = memory_log(index_interval_bytes=1, segment_index_bytes=60)
    for _ in range(30):
        append(log, batch_of(1))
    assert len(log.segments) > 4
    assert all(segment.indexes.offsets.count <= 4 for segment in log.segments)
    check_indexes(log)


def test_a_changed_config_takes_effect_at_once() -> None:
    _, log = memory_log()
    append(log, batch_of(5))
    log.config = TopicConfig(segment_bytes=log.active.size + 10)
    append(log, batch_of(5))
    assert len(log.segments) == 2
    log.config = TopicConfig(segment_ms=10)
    append(log, batch_of(1, timestamp=NOW_MS + 1000))
    assert len(log.segments) == 3
    log.config = TopicConfig(timestamp_type_log_append=True)
    assert append(log, batch_of(1), now_ms=NOW_MS + 1000).log_append_time_ms == NOW_MS + 1000


def test_an_empty_segment_is_not_rolled() -> None:
    _, log = memory_log()
    log.roll(NOW_MS)
    assert len(log.segments) == 1
    append(log, batch_of(1))
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_epochs_follow_the_batches() -> None:
    _, log = memory_log()
    for epoch in (0, 0, 2, 2, 5):
        append(log, batch_of(2), leader_epoch=epoch)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (2, 4), (5, 8)]
    assert log.epochs.end_offset_for(3, log.log_end_offset) == (2, 8)


def test_flushes_are_asked_for_as_configured() -> None:
    _, log = memory_log(flush_messages=3, flush_ms=1000)
    append(log, batch_of(2))
    assert not log.flush_due()
    append(log, batch_of(1))
    assert log.flush_due()
    assert not log.flush_ms_due(NOW_MS + 999)
    assert log.flush_ms_due(NOW_MS + 1000)
    target = log.flush_target()
    log.sync_until(target)
    log.mark_flushed(target, NOW_MS + 1000)
    assert (log.recovery_point, log.flush_due(), log.flush_ms_due(NOW_MS + 9999)) == (3, False, False)
    append(log, batch_of(1))
    assert not log.flush_ms_due(NOW_MS + 1999)
    assert log.flush_target(sealed_only=True) == 0


def test_a_closed_log_refuses_everything() -> None:
    _, log = memory_log()
    append(log, batch_of(1))
    log.close()
    log.close()
    with raises(ErrorCode.KAFKA_STORAGE_ERROR):
        append(log, batch_of(1, timestamp=-1))
    with raises(ErrorCode.KAFKA_STORAGE_ERROR):
        log.read(0, 1000, 1, True)
    with raises(ErrorCode.KAFKA_STORAGE_ERROR):
        log.roll(NOW_MS)


def test_a_consumer_still_gets_a_slice_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    disk = RealDisk()
    log = open_log(disk, str(tmp_path / "orders-3"))
    append(log, batch_of(3))
    slice_ = log.read(0, 1000, 3, True)
    log.rename_for_deletion(str(tmp_path / "orders-3.x-delete"))
    disk.remove_tree(str(tmp_path / "orders-3.x-delete"))
    assert len(read_bytes(slice_)) == slice_.length if slice_ else False
    with raises(ErrorCode.KAFKA_STORAGE_ERROR):
        append(log, batch_of(1))


# -- as a follower


def leader_bytes(*, compacted: bool = False) -> bytearray:
    _, log = memory_log()
    for number in range(6):
        producer = ProducerFields(1, 0, number * 2)
        append(log, batch_of(2, producer=producer, transactional=number == 5), leader_epoch=number // 3)
    batches = read_all(log)
    return bytearray(b"".join(batches[:2] + batches[4:] if compacted else batches))


def test_a_follower_keeps_what_its_leader_wrote() -> None:
    _, log = memory_log()
    data = leader_bytes()
    log.append_as_follower(memoryview(data))
    assert b"".join(read_all(log)) == bytes(data)
    assert log.log_end_offset == 12
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 6)]
    assert log.producers.active_producers()[0].next_sequence == 12
    assert log.producers.first_unstable_offset == 10


def test_a_follower_takes_gaps_and_leaves_out_half_a_batch() -> None:
    _, log = memory_log()
    data = leader_bytes(compacted=True)
    log.append_as_follower(memoryview(data)[:-1])
    assert log.log_end_offset == 10
    assert [read_header(batch).base_offset for batch in read_all(log)] == [0, 2, 8]
    # An offset in the gap gives the next batch, from the tail as well as from the file.
    assert read_header(read_bytes(log.read(5, 1000, 10, True))).base_offset == 8
    log.active.tail = None
    assert read_header(read_bytes(log.read(5, 1000, 10, True))).base_offset == 8


def test_a_follower_refuses_damage_and_overlap() -> None:
    _, log = memory_log()
    data = leader_bytes()
    damaged = bytearray(data)
    damaged[70] ^= 1
    with raises(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(memoryview(damaged))
    log.append_as_follower(memoryview(data))
    with raises(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(memoryview(data))
    assert log.log_end_offset == 12


def test_offsets_that_are_far_apart_go_to_segments_of_their_own() -> None:
    disk, log = memory_log()
    far = batch_of(2)
    far[0:8] = (2**32).to_bytes(8, "big")
    log.append_as_follower(memoryview(batch_of(2)))
    log.append_as_follower(memoryview(far))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 2**32]
    assert read_header(read_bytes(log.read(5, 1000, log.log_end_offset, True))).base_offset == 2**32
    log.close()
    assert open_log(disk, DIRECTORY).log_end_offset == 2**32 + 2


def test_the_header_check_of_producers_accepts_what_these_tests_send() -> None:
    assert check(memoryview(batch_of(3))).record_count == 3


def test_too_few_open_files_are_no_broken_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads, writes or opens is told to try again, and the directory stays online."""
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, "/data/orders-3")
    append(log, batch_of(2))

    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        log.active.log.forget()
        patched.setattr(disk, "open", refused)
        touches: list[Callable[[], object]] = [
            lambda: log.read(0, 1000, 2, True),
            lambda: append(log, batch_of(1)),
            lambda: open_log(disk, "/data/orders-4"),
        ]
        for touch in touches:
            with pytest.raises(ApiError) as raised:
                touch()
            assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(log, batch_of(1)).base_offset == 2
    assert len(read_all(log)) == 2
    assert open_log(disk, "/data/orders-4", clean=False).log_end_offset == 0
