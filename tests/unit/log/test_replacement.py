"""Compaction replaces segments; a crash at any moment leaves the old ones or the new ones, and never neither."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import names, replacement
from ottla.log.disk import Disk, RealDisk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.model.configs.resolve import TopicConfig
from ottla.wire.batch import iterate, read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of, check_indexes, open_log, read_all

DIRECTORY = "/data/orders-3"
CONFIG = TopicConfig(cleanup_compact=True, index_interval_bytes=150)


def log_of_segments(segments: int = 5) -> tuple[CrashDisk, PartitionLog]:
    """Segments of five batches with two records each; the last one is empty."""
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, DIRECTORY, config=CONFIG)
    for _ in range(segments):
        for _ in range(5):
            append(log, batch_of(2, timestamp=NOW_MS + log.log_end_offset))
        log.roll(NOW_MS)
    log.sync_until(log.log_end_offset)
    log.expect_gaps(log.log_end_offset, log.truncations)
    return disk, log


def write_cleaned(disk: Disk, old: Sequence[Segment], keep: Callable[[int], bool], directory: str = DIRECTORY) -> int:
    """A `.cleaned` segment with the batches of `old` whose base offset is to be kept; returns its base offset."""
    cleaned = Segment(directory, old[0].base_offset, OpenFiles(disk, 16), suffix=names.CLEANED)
    cleaned.create()
    for segment in old:
        data = segment.log.get().pread(segment.size, 0)
        for position, header in iterate(data):
            if keep(header.base_offset):
                batch = data[position : position + header.size]
                cleaned.append(batch, header.size, header.base_offset, header.last_offset, header.max_timestamp)
    cleaned.seal()
    return cleaned.base_offset


def offsets(log: PartitionLog) -> list[int]:
    return [read_header(batch).base_offset for batch in read_all(log)]


def test_segments_are_replaced_while_readers_go_on() -> None:
    disk, log = log_of_segments()
    old = log.segments[:3]
    under_way = log.read(10, 1 << 20, 50, True)
    base = write_cleaned(disk, old, lambda offset: offset % 8 == 0)
    dropped = log.replace_segments(old, replacement.commit(disk, DIRECTORY, [base]))
    assert dropped == old
    assert [segment.base_offset for segment in log.segments] == [0, 30, 40, 50]
    assert offsets(log) == [0, 8, 16, 24, *range(30, 50, 2)]
    log.delete_files(dropped)
    assert under_way is not None
    assert read_header(under_way.file.pread(under_way.length, under_way.position)).base_offset == 10
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(names.PASSING)]
    check_indexes(log)
    log.close()
    assert offsets(open_log(disk, DIRECTORY, config=CONFIG)) == [0, 8, 16, 24, *range(30, 50, 2)]


def test_a_lookup_by_time_does_not_mix_old_and_new() -> None:
    disk, log = log_of_segments(2)
    base = write_cleaned(disk, log.segments[:1], lambda offset: offset >= 8)
    log.replace_segments(log.segments[:1], replacement.commit(disk, DIRECTORY, [base]))
    found = log.offset_for_timestamp(NOW_MS, 20)
    assert found is not None
    assert found.offset == 8


def test_new_segments_are_thrown_away_if_an_old_one_is_gone() -> None:
    disk, log = log_of_segments()
    old = log.segments[:3]
    base = write_cleaned(disk, old, lambda offset: True)
    swapped = replacement.commit(disk, DIRECTORY, [base])
    log.delete_files(log.delete_records_before(10))
    assert log.replace_segments(old, swapped) == []
    assert [segment.base_offset for segment in log.segments] == [10, 20, 30, 40, 50]
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(names.SWAP)]


def test_what_is_not_decided_is_dropped_and_what_is_decided_is_finished() -> None:
    disk, log = log_of_segments()
    write_cleaned(disk, log.segments[:2], lambda offset: offset == 18)
    undecided = disk.crash_with_everything()
    assert offsets(open_log(undecided, DIRECTORY, config=CONFIG, clean=False)) == list(range(0, 50, 2))
    replacement.commit(disk, DIRECTORY, [0])
    decided = disk.crash_with_everything()
    assert offsets(open_log(decided, DIRECTORY, config=CONFIG, clean=False)) == [18, *range(20, 50, 2)]
    for after in (undecided, decided):
        assert not [name for name in after.listdir(DIRECTORY) if name.endswith(names.PASSING)]


def test_gaps_that_compaction_left_are_not_taken_for_losses() -> None:
    """Even with a recovery point from before: a gap between segments is no reason to cut what follows."""
    disk, log = log_of_segments()
    base = write_cleaned(disk, log.segments[:3], lambda offset: offset == 0)
    log.replace_segments(log.segments[:3], replacement.commit(disk, DIRECTORY, [base]))
    recovered = open_log(disk.crash_with_everything(), DIRECTORY, config=TopicConfig(), clean=False, recovery_point=0)
    assert offsets(recovered) == [0, *range(30, 50, 2)]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_crash_at_any_step_of_a_replacement_keeps_every_record_that_stays(seed: int) -> None:
    rng = random.Random(seed)
    disk, log = log_of_segments()
    first, count = rng.randint(0, 2), rng.randint(1, 3)
    old = log.segments[first : first + count]
    end = log.segments[first + count].base_offset
    stays = {offset for offset in range(0, 50, 2) if not old[0].base_offset <= offset < end or rng.random() < 0.5}
    steps: list[Callable[[], object]] = []
    crash_after = rng.randint(0, 4)
    groups = [old[:1], old[1:]] if count > 1 and rng.random() < 0.5 else [old]
    for group in groups:
        base = write_cleaned(disk, group, lambda offset: offset in stays)
        steps.append(lambda base=base: replacement.commit(disk, DIRECTORY, [base]))  # type: ignore[misc]
        swap = [names.segment_path(DIRECTORY, base, names.LOG, names.SWAP)]
        steps.append(lambda group=group, swap=swap: log.delete_files(log.replace_segments(group, swap)))  # type: ignore[misc]
    for step in steps[:crash_after]:
        step()
    after = disk.crash(rng, names_in_order=rng.random() < 0.5)
    recovered = open_log(after, DIRECTORY, config=CONFIG, clean=False, recovery_point=rng.choice([0, 30, 50]))
    found = offsets(recovered)
    assert stays <= set(found)
    assert found == sorted(set(found))
    check_indexes(recovered)
    again = open_log(after.crash(rng), DIRECTORY, config=CONFIG, clean=False, recovery_point=50)
    assert offsets(again) == found


@pytest.mark.parametrize("suffix", [names.DELETED, names.CLEANED])
def test_leftovers_are_removed_at_a_clean_start_too(suffix: str) -> None:
    disk, log = log_of_segments(1)
    log.close()
    for kind in (".log", ".index", ".timeindex"):
        disk.open(f"{DIRECTORY}/{7:020d}{kind}{suffix}", create=True)
    log = open_log(disk, DIRECTORY, config=CONFIG)
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(suffix)]
    assert offsets(log) == [0, 2, 4, 6, 8]


@pytest.fixture
def restless_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless_threads")
def test_threads_find_their_way_while_segments_are_replaced_and_dropped(tmp_path: Path) -> None:
    """A missing file is a fault of the disk only if its segment is still in the log: renames take nothing offline."""
    disk, directory = RealDisk(), str(tmp_path / "orders-3")
    config = TopicConfig(segment_bytes=1000, index_interval_bytes=200)
    log = open_log(disk, directory, config=config, files=OpenFiles(disk, 6))
    done = threading.Event()
    problems: list[BaseException] = []

    def seek(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not done.is_set():
                end = log.log_end_offset
                wanted = rng.randint(0, end + 5)
                found = log.offset_for_timestamp(wanted, end)
                assert found is None or found.offset == found.timestamp >= wanted
                log.offset_of_max_timestamp()
                if seed == 0:
                    log.sync_until(end)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=seek, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1500):
            append(log, batch_of(1, timestamp=number))
            if number % 50 == 49 and len(log.segments) > 4:
                old = log.segments[1:3]
                base = write_cleaned(disk, old, lambda offset: True, directory)
                log.delete_files(log.replace_segments(old, replacement.commit(disk, directory, [base])))
            if number % 300 == 299:
                log.delete_files(log.delete_records_before(number - 200))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if problems:
        raise problems[0]
