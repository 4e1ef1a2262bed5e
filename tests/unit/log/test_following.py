"""A follower's log: it takes what its leader wrote, goes back where they parted, and a crash brings back no mixture."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.log.disk import RealDisk
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import read_header
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
)

DIRECTORY = "/data/orders-3"
SMALL: dict[str, Any] = {"segment_bytes": 1000, "index_interval_bytes": 1, "segment_index_bytes": 1200}


def memory_log(disk: CrashDisk | None = None, **config: Any) -> PartitionLog:
    disk = disk or CrashDisk()
    disk.makedirs("/data")
    return open_log(disk, DIRECTORY, config=TopicConfig(**config))


def raises(code: ErrorCode) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def leader_log(batches: int, *, epochs: tuple[int, ...] = (0,), value: bytes = b"value", seed: int = 0) -> PartitionLog:
    """A log with producers, transactions and aborts in it."""
    log, rng, sequences = memory_log(), Random(seed), {1: 0, 2: 0}
    for number in range(batches):
        epoch = epochs[number * len(epochs) // batches]
        producer_id, count = rng.choice((1, 2, -1)), rng.randint(1, 3)
        if producer_id < 0:
            append(log, batch_of(count, value=value, timestamp=NOW_MS + number), leader_epoch=epoch)
            continue
        fields = ProducerFields(producer_id, 0, sequences[producer_id])
        sequences[producer_id] += count
        batch = batch_of(count, value=value, producer=fields, transactional=True, timestamp=NOW_MS + number)
        append(log, batch, leader_epoch=epoch)
        if rng.random() < 0.4:
            append(log, marker_of(producer_id, 0, commit=rng.random() < 0.5), leader_epoch=epoch)
    return log


def bytes_of(log: PartitionLog) -> bytes:
    return b"".join(read_all(log))


def state_of(log: PartitionLog) -> tuple[object, ...]:
    """Everything that a follower must know as its leader does."""
    last = max(log.log_end_offset, 1)
    return (
        bytes_of(log),
        log.log_start_offset,
        log.log_end_offset,
        log.epochs.entries,
        sorted(log.producers.to_snapshot()),
        log.producers.last_stable_offset(last),
        log.aborted_transactions(log.log_start_offset, last),
    )


@pytest.mark.parametrize("config", [{}, SMALL])
@pytest.mark.parametrize("batches_max", [1, 3, 1 << 30])
def test_a_follower_comes_to_be_what_its_leader_is(config: dict[str, Any], batches_max: int) -> None:
    leader, log = leader_log(60, epochs=(0, 1, 5)), memory_log(**config)
    rest = memoryview(bytes_of(leader))
    while len(rest):
        taken = log.append_as_follower(rest, NOW_MS, batches_max)
        assert taken
        rest = rest[taken:]
    assert state_of(log) == state_of(leader)
    check_indexes(log)
    if config:
        assert len(log.segments) > 3
        assert all(s.indexes.offsets.count <= s.index_entries_max for s in log.segments)


def test_batches_that_fit_the_segment_are_written_in_one_piece() -> None:
    leader, disk = memory_log(), CrashDisk()
    for _ in range(50):
        append(leader, batch_of(2))
    log = memory_log(disk)
    log.append_as_follower(memoryview(bytes_of(leader)), NOW_MS)  # The first ones make the segment's age known.
    append(leader, batch_of(2))
    writes: list[int] = []
    disk.fail_writes = lambda size: writes.append(size)
    more = memory_log()
    for _ in range(51):
        append(more, batch_of(2))
    for _ in range(30):
        append(more, batch_of(2))
    log.append_as_follower(memoryview(b"".join(read_all(more)[50:])), NOW_MS)
    assert log.log_end_offset == 162
    assert len([size for size in writes if size > 1000]) == 1
    assert bytes_of(log) == bytes_of(more)


def test_what_comes_before_a_bad_batch_is_written() -> None:
    batches = read_all(leader_log(10))
    damaged = bytearray(b"".join(batches))
    damaged[len(damaged) - 3] ^= 1
    log = memory_log()
    with raises(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(memoryview(damaged), NOW_MS)
    assert log.log_end_offset == read_header(batches[-1]).base_offset
    assert log.append_as_follower(memoryview(batches[-1]), NOW_MS) == len(batches[-1])


def test_a_batch_of_an_older_leader_cannot_follow() -> None:
    batches = read_all(leader_log(6, epochs=(2, 3)))
    log = memory_log()
    log.append_as_follower(memoryview(b"".join(batches)), NOW_MS)
    late = bytearray(batch_of(1))
    late[0:8] = log.log_end_offset.to_bytes(8, "big")
    late[12:16] = (2).to_bytes(4, "big")
    with raises(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(memoryview(late), NOW_MS)


def test_garbage_and_half_a_batch() -> None:
    log = memory_log()
    assert log.append_as_follower(memoryview(b"x" * 60), NOW_MS) == 0
    with raises(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(memoryview(b"x" * 100), NOW_MS)
    batch = batch_of(1)
    assert log.append_as_follower(memoryview(batch)[:-1], NOW_MS) == 0
    assert log.log_end_offset == 0


def test_a_batch_that_is_larger_than_segments_are_now_is_taken_all_the_same() -> None:
    leader = memory_log()
    for size in (10, 5000, 10):
        append(leader, batch_of(1, value=b"x" * size))
    log = memory_log(segment_bytes=1000)
    log.append_as_follower(memoryview(bytes_of(leader)), NOW_MS)
    assert bytes_of(log) == bytes_of(leader)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = CrashDisk()
    leader, log = leader_log(20), memory_log(disk)
    log.append_as_follower(memoryview(b"".join(read_all(leader)[:5])), NOW_MS)
    before = state_of(log)
    disk.fail_writes = lambda size: OSError(errno.ENOSPC, "full")
    rest = memoryview(b"".join(read_all(leader)[5:]))
    with raises(ErrorCode.KAFKA_STORAGE_ERROR):
        log.append_as_follower(rest, NOW_MS)
    assert state_of(log) == before
    disk.fail_writes = lambda size: None
    log.append_as_follower(rest, NOW_MS)
    assert state_of(log) == state_of(leader)


# -- going back


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), cut=st.integers(0, 40), small=st.booleans(), reopened=st.booleans())
def test_a_log_that_was_cut_is_as_if_it_had_never_been_longer(seed: int, cut: int, small: bool, reopened: bool) -> None:
    leader = leader_log(40, epochs=(0, 2, 3), seed=seed)
    batches = read_all(leader)
    at = min(cut, len(batches) - 1)
    disk, config = CrashDisk(), SMALL if small else {}
    log = memory_log(disk, **config)
    log.append_as_follower(memoryview(b"".join(batches)), NOW_MS)
    if reopened:
        log.close()
        log = memory_log(disk, **config)
    offset = read_header(batches[at]).base_offset
    log.delete_files(log.truncate_to(offset, NOW_MS, log.producers_at(offset)))
    log.sync_truncation()
    never = memory_log(**config)
    never.append_as_follower(memoryview(b"".join(batches[:at])), NOW_MS)
    assert state_of(log) == state_of(never)
    assert log.truncations == 1
    check_indexes(log)
    log.append_as_follower(memoryview(b"".join(batches[at:])), NOW_MS)
    assert state_of(log) == state_of(leader)
    check_indexes(log)
    log.close()
    assert state_of(memory_log(disk, **config)) == state_of(leader)


def test_a_cut_inside_of_a_batch_takes_the_batch() -> None:
    log = memory_log()
    for _ in range(4):
        append(log, batch_of(5, producer=ProducerFields(1, 0, log.log_end_offset)))
    log.truncate_to(12, NOW_MS)
    assert log.log_end_offset == 10
    assert log.producers.to_snapshot()[0].last_sequence == 9


def test_a_log_that_was_cut_inside_of_its_first_batch_can_be_cut_again() -> None:
    """The batch at the beginning of a segment has no index entry: an index that has one is taken for damaged."""
    log = memory_log(index_interval_bytes=1)
    for _ in range(3):
        append(log, batch_of(2))
    log.truncate_to(1, NOW_MS)
    for _ in range(3):
        append(log, batch_of(2))
    assert all(position > 0 for _, position in log.active.indexes.offsets.entries())
    log.roll(NOW_MS)
    append(log, batch_of(2))
    log.truncate_to(4, NOW_MS)
    assert log.log_end_offset == 4


def test_a_cut_at_the_end_takes_an_epoch_in_which_nothing_was_written() -> None:
    log = memory_log()
    append(log, batch_of(5), leader_epoch=3)
    log.epochs.assign(7, 5)
    assert log.truncate_to(5) == []
    assert log.epochs.latest == 3
    assert log.truncations == 0


def test_a_cut_below_the_start_lowers_it() -> None:
    log = memory_log()
    for _ in range(10):
        append(log, batch_of(1))
    log.delete_records_before(8)
    log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


@pytest.mark.parametrize("offset", [0, 7, 500])
def test_a_log_begins_anew(tmp_path: Path, offset: int) -> None:
    log = open_log(RealDisk(), str(tmp_path / "orders-3"))
    for _ in range(10):
        append(log, batch_of(1, producer=ProducerFields(1, 0, log.log_end_offset)), leader_epoch=2)
    log.delete_files(log.truncate_fully_and_start_at(offset))
    log.sync_truncation()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (offset, offset, 0)
    assert (log.epochs.entries, len(log.producers)) == ((), 0)
    append(log, batch_of(2))
    log.close()
    log = open_log(RealDisk(), str(tmp_path / "orders-3"))
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset + 2)


def test_a_log_begins_inside_of_its_first_batch() -> None:
    batch = bytearray(batch_of(10))
    batch[0:8] = (95).to_bytes(8, "big")
    log = memory_log()
    log.truncate_fully_and_start_at(95, log_start_offset=100)
    log.append_as_follower(memoryview(batch), NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (100, 105)
    assert log.read(100, 1000, 105, True) is not None
    with raises(ErrorCode.OFFSET_OUT_OF_RANGE):
        log.read(99, 1000, 105, True)


def test_a_sync_that_began_before_a_cut_says_nothing_about_what_came_after() -> None:
    log = memory_log(**SMALL)
    for _ in range(30):
        append(log, batch_of(1))
    target, truncations = log.flush_target(), log.truncations
    log.sync_until(target)
    log.truncate_to(3)
    for _ in range(40):
        append(log, batch_of(1), leader_epoch=1)
    log.mark_flushed(target, truncations=truncations)
    assert log.recovery_point <= 3
    log.mark_flushed(log.log_end_offset, truncations=log.truncations)
    assert log.recovery_point == log.log_end_offset


@pytest.mark.parametrize("distance", [1, 40, 2**31 + 7])
def test_a_crash_costs_a_follower_nothing_where_its_leaders_compaction_left_gaps(distance: int) -> None:
    disk, leader = CrashDisk(), leader_log(40, value=b"v" * 100)
    log = memory_log(disk, **SMALL)
    for number, batch in enumerate(read_all(leader)):
        if number % 3 == 0:
            moved = bytearray(batch)
            moved[:8] = (read_header(batch).base_offset + number * distance).to_bytes(8, "big")
            assert log.append_as_follower(memoryview(moved), NOW_MS) == len(moved)
    before, end_offset = read_all(log), log.log_end_offset
    assert len(log.segments) > 3
    check_indexes(log)

    # The process dies, and all it wrote is there.
    again = open_log(disk, DIRECTORY, config=TopicConfig(**SMALL), clean=False)

    assert again.log_end_offset == end_offset
    assert read_all(again) == before
    check_indexes(again)


def test_a_crash_that_takes_the_end_before_a_huge_gap_takes_what_comes_after_too() -> None:
    """Else the follower would never ask for it again."""
    disk = CrashDisk()
    log = memory_log(disk)
    for number, offset in enumerate((0, 1, 2**31 + 9)):
        batch = batch_of(1, value=b"%d" % number)
        batch[:8] = offset.to_bytes(8, "big")
        log.append_as_follower(memoryview(batch), NOW_MS)
    first = disk.open(f"{DIRECTORY}/{0:020d}.log")
    first.truncate(first.size() // 2)
    again = open_log(disk, DIRECTORY, clean=False)
    assert again.log_end_offset == 1
    assert len(read_all(again)) == 1


@pytest.mark.parametrize("timestamp", [NOW_MS, -100])
def test_an_index_that_a_crash_brought_back_from_before_a_cut_is_not_believed(timestamp: int) -> None:
    disk = CrashDisk()
    log = memory_log(disk, index_interval_bytes=1)
    for number in range(20):
        append(log, batch_of(1, timestamp=max(timestamp + number, -1)))
    log.roll(NOW_MS)
    paths = [f"{DIRECTORY}/{0:020d}{kind}" for kind in (".index", ".timeindex")]
    before = [disk.read(path) for path in paths]
    log.delete_files(log.truncate_to(5, NOW_MS))
    log.sync_truncation()
    log.roll(NOW_MS)
    append(log, batch_of(1, timestamp=max(timestamp, -1)))
    for path, data in zip(paths, before, strict=True):
        disk.open(path).pwrite(data, 0)
    again = open_log(disk, DIRECTORY, clean=False, recovery_point=5, config=log.config)
    check_indexes(again)
    assert again.segments[0].indexes.offsets.count == 4
    assert again.offset_of_max_timestamp() == ((4, NOW_MS + 4, 0) if timestamp > 0 else None)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_cut_into_a_segment_whose_index_was_lost_hides_nothing_from_lookups_by_time(kind: str) -> None:
    disk = CrashDisk()
    log = memory_log(disk, index_interval_bytes=1)
    for number in range(20):
        append(log, batch_of(1, timestamp=NOW_MS + number))
    log.roll(NOW_MS)
    disk.remove(f"{DIRECTORY}/{0:020d}{kind}")
    log.segments[0].log.forget()
    log.truncate_to(5, NOW_MS)
    for number in range(5, 20):
        append(log, batch_of(1, timestamp=NOW_MS + number))
    log.roll(NOW_MS)
    check_indexes(log)
    found = log.offset_for_timestamp(NOW_MS + 12, 20)
    assert found is not None
    assert found.offset == 12


def test_a_segment_whose_sync_a_cut_came_between_is_synced_again() -> None:
    disk = CrashDisk()
    log = memory_log(disk, **SMALL)
    for _ in range(30):
        append(log, batch_of(1))
    first = log.segments[0]
    # The sync of the sealed segment is under way while it is cut, and becomes the active one.

    def cut() -> None:
        if not log.truncations:
            log.truncate_to(2)

    disk.before_sync = cut  # type: ignore[method-assign]
    first.sync()
    assert log.active is first
    assert not first.synced
    disk.before_sync = lambda: None  # type: ignore[method-assign]
    first.sync()
    assert first.synced


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=1007)  # These fail if the cut is not synced before the next append.
@example(seed=1957)
@example(seed=2251)
def test_a_crash_around_a_cut_leaves_a_part_of_one_history(seed: int) -> None:
    """The old history, or the new one as far as it was written: never some of the new before some of the old."""
    rng = Random(seed)
    old, new, new_epoch_from = memory_log(), memory_log(), rng.choice((8, 12))
    for number in range(20):
        batch = batch_of(1, value=bytes([65 + number]) * 200)
        append(old, bytearray(batch), leader_epoch=1 if number < 8 else 2)
        # Of the same size, so that what is left of the old one fits behind the new one.
        batch = batch_of(1, value=bytes([(65 if number < 8 else 97) + number]) * 200)
        append(new, bytearray(batch), leader_epoch=1 if number < new_epoch_from else 3)
    disk = CrashDisk()
    log = memory_log(disk, segment_bytes=rng.choice((1500, 1 << 20)))
    log.append_as_follower(memoryview(bytes_of(old)), NOW_MS)
    log.sync_until(log.log_end_offset)
    crash_at = rng.randint(0, 3)
    if crash_at > 0:
        log.truncate_to(8)
    if crash_at > 1:
        log.sync_truncation()
        log.append_as_follower(memoryview(b"".join(read_all(new)[8 : rng.randint(9, 20)])), NOW_MS)
    if crash_at > 2:
        log.sync_until(log.log_end_offset)
    after = open_log(disk.crash(rng), DIRECTORY, clean=False, recovery_point=8, config=log.config)
    batches = read_all(after)
    assert after.log_end_offset >= 8
    assert batches in (read_all(old)[: len(batches)], read_all(new)[: len(batches)])


def test_recovery_cuts_where_an_older_epoch_follows_a_newer_one() -> None:
    disk = CrashDisk()
    log = memory_log(disk)
    for epoch in (1, 3):
        append(log, batch_of(1), leader_epoch=epoch)
    stale = bytearray(batch_of(1))
    stale[0:8] = (2).to_bytes(8, "big")
    stale[12:16] = (2).to_bytes(4, "big")
    log.active.log.get().pwrite(stale, log.active.size)
    after = open_log(disk.crash_with_everything(), DIRECTORY, clean=False)
    assert after.log_end_offset == 2


def test_a_crash_that_takes_the_first_segment_behind_a_huge_gap_takes_what_comes_after_too() -> None:
    """Where names last in no order; else the follower would never ask for it again."""
    disk = CrashDisk()
    log = memory_log(disk)
    lost = 2**31 + 9
    for offset in (0, lost, lost + 1):
        batch = batch_of(1)
        batch[:8] = offset.to_bytes(8, "big")
        log.append_as_follower(memoryview(batch), NOW_MS)
        log.roll(NOW_MS)
    for kind in (".log", ".index", ".timeindex"):
        disk.remove(f"{DIRECTORY}/{lost:020d}{kind}")
    again = open_log(disk, DIRECTORY, clean=False)
    assert again.log_end_offset == 1
    assert len(read_all(again)) == 1
