"""Room behind the end of a log: its file is longer than it is while it grows, and never when somebody else looks."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.log.disk import RealDisk
from ottla.log.dump import dump
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.log.room import FILLED_STEPS_MIN, RESERVED_FILLS, RESERVED_FILLS_MAX, reserve_from, reserved_step
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import OttlaError
from ottla.wire.batch import read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of, check_indexes, open_log, read_all

DIRECTORY = "/data/orders-3"
PATH = f"{DIRECTORY}/{0:020d}.log"
FILL_BYTES = 256
ROOM_SINCE = FILLED_STEPS_MIN * FILL_BYTES
FULL = OSError(errno.ENOSPC, "No space left on device")


def grown(disk: CrashDisk, config: TopicConfig | None = None) -> PartitionLog:
    """A log that has room."""
    disk.makedirs(DIRECTORY)
    log = open_log(disk, DIRECTORY, config=config or TopicConfig())
    while not log.active.has_room:
        append(log, batch_of(2))
    return log


def test_a_log_gets_room_when_it_has_grown_and_uses_it_up() -> None:
    disk = CrashDisk(FILL_BYTES)
    disk.makedirs(DIRECTORY)
    log = open_log(disk, DIRECTORY)
    sizes = []
    for number in range(200):
        batch = batch_of(1 + number % 3)
        append(log, batch)
        sizes.append((log.active.size, disk.size(PATH)))
    assert all(found == size for size, found in sizes if size <= ROOM_SINCE)
    assert all(found == -(-size // FILL_BYTES) * FILL_BYTES for size, found in sizes if size > ROOM_SINCE)
    assert len({found for size, found in sizes if size > ROOM_SINCE}) < len([0 for s, _ in sizes if s > ROOM_SINCE])
    assert len(read_all(log)) == 200
    check_indexes(log)


def test_a_large_batch_needs_no_room() -> None:
    log = grown(CrashDisk(FILL_BYTES))
    append(log, batch_of(2, value=b"x" * FILL_BYTES))
    assert not log.active.has_room
    append(log, batch_of(1))
    assert log.active.has_room
    assert len({read_header(batch).base_offset for batch in read_all(log)}) == len(read_all(log))


def test_batches_that_are_written_together_get_room_too() -> None:
    disk = CrashDisk(FILL_BYTES)
    log = grown(disk)
    for together in (2, 3, 1, 2):
        batches = [batch_of(1) for _ in range(together)]
        headers = [read_header(batch) for batch in batches]
        assert log.append_run([memoryview(batch) for batch in batches], headers, 0) is not None
        assert disk.size(PATH) % FILL_BYTES == 0
        assert log.append_run(bytearray(batch_of(1)), headers[:1], 0) is not None
        assert disk.size(PATH) >= log.active.size
    again = open_log(disk.crash_with_everything(), DIRECTORY, clean=False)
    assert read_all(again) == read_all(log)


def sealed_by_a_roll(log: PartitionLog) -> None:
    log.roll(NOW_MS)


def sealed_by_a_close(log: PartitionLog) -> None:
    log.close()


@pytest.mark.parametrize("seal", [sealed_by_a_roll, sealed_by_a_close])
def test_what_is_sealed_ends_with_its_last_batch(seal: Callable[[PartitionLog], None]) -> None:
    disk = CrashDisk(FILL_BYTES)
    log = grown(disk)
    size, before = log.active.size, read_all(log)
    assert disk.size(PATH) > size
    seal(log)
    assert disk.size(PATH) == size
    again = open_log(disk, DIRECTORY, clean=seal is sealed_by_a_close)
    assert read_all(again) == before


def test_a_clean_stop_has_synced_how_long_the_file_is() -> None:
    disk = CrashDisk(FILL_BYTES)
    log = grown(disk)
    log.sync_until(log.log_end_offset)
    log.mark_flushed(log.log_end_offset, truncations=log.truncations)
    size = log.active.size
    log.close()
    assert len(disk.files[PATH].data) == size
    assert not disk.files[PATH].pending


def test_a_killed_process_leaves_zeros_that_the_next_start_takes_away() -> None:
    disk = CrashDisk(FILL_BYTES)
    log = grown(disk)
    before, end_offset = read_all(log), log.log_end_offset
    after = disk.crash_with_everything()
    again = open_log(after, DIRECTORY, clean=False)
    assert (read_all(again), again.log_end_offset) == (before, end_offset)
    assert after.size(PATH) == again.active.size
    append(again, batch_of(1))
    assert again.log_end_offset == end_offset + 1


def test_without_space_for_room_the_batch_is_stored_all_the_same() -> None:
    disk = CrashDisk(FILL_BYTES)
    log = grown(disk)
    while log.active.has_room:
        append(log, batch_of(1)) if log.active.size + len(batch_of(1)) <= log.active.fill_at else log.active.cut_back()
    batch = batch_of(1)
    disk.fail_writes = lambda size: FULL if size > len(batch) else None
    assert append(log, batch).base_offset == log.log_end_offset - 1
    assert disk.size(PATH) == log.active.size
    disk.fail_writes = lambda size: FULL
    end_offset = log.log_end_offset
    with pytest.raises(OttlaError, match="space"):
        append(log, batch_of(1))
    assert (disk.size(PATH), log.log_end_offset) == (log.active.size, end_offset)


def test_a_log_that_rests_gives_its_room_back_and_may_grow_again() -> None:
    disk = CrashDisk(FILL_BYTES)
    disk.makedirs(DIRECTORY)
    files = OpenFiles(disk, 64)
    log = open_log(disk, DIRECTORY, files=files)
    while not log.active.has_room:
        append(log, batch_of(2))
    files.rooms.give_back()
    assert log.active.has_room
    append(log, batch_of(1))
    files.rooms.give_back()
    assert disk.size(PATH) > log.active.size
    files.rooms.give_back()
    assert (disk.size(PATH), len(files.rooms)) == (log.active.size, 0)
    append(log, batch_of(1))
    assert log.active.has_room
    assert read_all(open_log(disk.crash_with_everything(), DIRECTORY, clean=False)) == read_all(log)


def test_a_log_that_was_deleted_cuts_nothing_off_the_one_that_has_its_name_now() -> None:
    disk = CrashDisk(FILL_BYTES)
    files = OpenFiles(disk, 64)
    disk.makedirs(DIRECTORY)
    deleted = open_log(disk, DIRECTORY, files=files)
    while not deleted.active.has_room:
        append(deleted, batch_of(2))
    deleted.active.log.forget()  # So many others are open.
    disk.rename(DIRECTORY, f"{DIRECTORY}.1-delete")
    disk.makedirs(DIRECTORY)
    log = open_log(disk, DIRECTORY)
    while log.active.size < 2 * deleted.active.size:
        append(log, batch_of(2))
    for _ in range(2):
        files.rooms.give_back()
    assert len(files.rooms) == 0
    assert disk.size(PATH) >= log.active.size
    assert read_all(open_log(disk.crash_with_everything(), DIRECTORY, clean=False)) == read_all(log)


def test_a_log_that_is_cut_back_has_no_room_left() -> None:
    disk = CrashDisk(FILL_BYTES)
    log = grown(disk)
    log.truncate_to(log.log_end_offset - 4, NOW_MS)
    assert disk.size(PATH) == log.active.size
    append(log, batch_of(1))
    assert read_all(open_log(disk.crash_with_everything(), DIRECTORY, clean=False)) == read_all(log)


def test_whoever_dumps_a_log_that_is_written_to_sees_its_batches_and_no_damage(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path))
    value = b"x" * 1000
    while not log.active.has_room and log.active.size < 1 << 20:
        append(log, batch_of(2, value=value))
    dumped = [batch.position for batch in dump(RealDisk(), log.active.path)]
    assert len(dumped) == len(read_all(log))
    log.close()


@pytest.mark.usefixtures("can_reserve")
def test_a_long_log_has_blocks_ahead_until_it_is_sealed_or_rests(tmp_path: Path) -> None:
    disk, files, directory = RealDisk(), OpenFiles(RealDisk(), 64), tmp_path / "orders-3"
    directory.mkdir()
    log = open_log(disk, str(directory), files=files)
    batch = batch_of(2, value=b"x" * 10_000)
    while log.active.size < reserve_from(disk.fill_bytes):
        append(log, bytearray(batch))

    def ahead_bytes() -> int:
        taken = Path(log.active.path).stat()
        return taken.st_blocks * 512 - log.active.size

    def grow() -> None:
        step = RESERVED_FILLS * disk.fill_bytes
        first = log.active.size // step
        while log.active.size // step == first:
            append(log, bytearray(batch))

    grow()
    assert ahead_bytes() > RESERVED_FILLS * disk.fill_bytes // 2
    for _ in range(2):
        files.rooms.give_back()
    assert ahead_bytes() < disk.fill_bytes, "it rests"
    grow()
    assert ahead_bytes() > RESERVED_FILLS * disk.fill_bytes // 2
    sealed = Path(log.active.path)
    size = log.active.size
    log.roll(NOW_MS)
    assert sealed.stat().st_size == size
    assert sealed.stat().st_blocks * 512 - size < disk.fill_bytes
    log.close()


def test_blocks_ahead_are_a_sixteenth_of_a_log_at_most() -> None:
    first, largest = RESERVED_FILLS * FILL_BYTES, RESERVED_FILLS_MAX * FILL_BYTES
    begin = reserve_from(FILL_BYTES)
    assert reserved_step(begin, FILL_BYTES) == first
    assert reserved_step(2 * begin - 1, FILL_BYTES) == first
    assert reserved_step(2 * begin, FILL_BYTES) == 2 * first
    assert reserved_step(FILLED_STEPS_MIN * largest, FILL_BYTES) == largest
    assert reserved_step(1 << 40, FILL_BYTES) == largest
    for size in range(begin, 40 * begin, begin // 3):
        assert reserved_step(size, FILL_BYTES) <= max(size // FILLED_STEPS_MIN, first)


def test_without_space_for_blocks_ahead_a_batch_is_stored_all_the_same() -> None:
    disk = CrashDisk(FILL_BYTES)
    log = grown(disk)
    while log.active.size < reserve_from(FILL_BYTES):
        append(log, batch_of(2))
    refused = []

    def no_more_than_a_write(size: int) -> OSError | None:
        if size <= FILL_BYTES:
            return None
        refused.append(size)
        return FULL

    disk.fail_writes = no_more_than_a_write
    for _ in range(RESERVED_FILLS * FILL_BYTES // len(batch_of(2)) + 1):
        append(log, batch_of(2))
    assert refused
    assert read_all(open_log(disk.crash_with_everything(), DIRECTORY, clean=False)) == read_all(log)
