"""Which transactions were aborted is known for every range, after every crash; where there are none it is free."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.handles import OpenFiles
from ottla.log.index import CorruptIndexError
from ottla.log.partition_log import PartitionLog
from ottla.log.transaction_index import ENTRY, AbortedTransaction, TransactionIndex, encode
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, append, batch_of, marker_of, open_log, read_all

DIRECTORY = "/data/orders-3"
PATH = "/data/00000000000000000000.txnindex"


def new_disk() -> CrashDisk:
    disk = CrashDisk()
    disk.makedirs("/data")
    return disk


def new_index(entries: list[AbortedTransaction]) -> TransactionIndex:
    index = TransactionIndex(OpenFiles(new_disk(), 8).handle(PATH))
    index.create()
    for entry in entries:
        index.append(entry)
    return index


def write(log: PartitionLog, producer_id: int, sequence: int, count: int = 1) -> int:
    batch = batch_of(count, producer=ProducerFields(producer_id, 0, sequence), transactional=True)
    return append(log, batch).base_offset


def end(log: PartitionLog, producer_id: int, *, commit: bool) -> int:
    return append(log, marker_of(producer_id, 0, commit=commit)).base_offset


def txnindex_files(disk: CrashDisk) -> list[str]:
    return [name for name in disk.listdir(DIRECTORY) if ".txnindex" in name]


def aborting_log(disk: CrashDisk) -> PartitionLog:
    """Offsets 0-1 committed, 2 aborted by 3, 4 of another transaction which 8 aborts, in the next segment."""
    log = open_log(disk, DIRECTORY)
    write(log, 1, 0)
    end(log, 1, commit=True)
    write(log, 1, 1)
    assert end(log, 1, commit=False) == 3
    write(log, 2, 0)
    write(log, 1, 2)
    end(log, 1, commit=True)
    log.roll(NOW_MS)
    write(log, 3, 0)
    assert end(log, 2, commit=False) == 8
    return log


ABORTED = [AbortedTransaction(1, 2, 3, 4), AbortedTransaction(2, 4, 8, 7)]


def test_an_entry_is_what_kafka_writes() -> None:
    packed = encode([AbortedTransaction(0x0102, 3, 9, 5)])
    assert packed == bytes(2) + b"".join(number.to_bytes(8, "big") for number in (0x0102, 3, 9, 5))


def test_a_range_finds_what_reaches_into_it_and_knows_when_there_is_no_more() -> None:
    index = new_index(
        [AbortedTransaction(1, 2, 5, 6), AbortedTransaction(2, 8, 12, 10), AbortedTransaction(3, 10, 20, 21)]
    )
    assert index.overlapping(0, 6) == ([AbortedTransaction(1, 2, 5, 6)], True)
    assert index.overlapping(6, 10) == ([AbortedTransaction(2, 8, 12, 10)], True)
    assert index.overlapping(6, 21) == ([AbortedTransaction(2, 8, 12, 10), AbortedTransaction(3, 10, 20, 21)], True)
    assert index.overlapping(13, 22) == ([AbortedTransaction(3, 10, 20, 21)], False)
    assert index.overlapping(21, 30) == ([], False)
    assert new_index([]).overlapping(0, 1) == ([], False)


@st.composite
def entries(draw: st.DrawFn) -> list[AbortedTransaction]:
    """As a log makes them: markers rise, and what is stable does."""
    found, last, stable = [], 0, 0
    for _ in range(draw(st.integers(0, 40))):
        last += draw(st.integers(1, 9))
        stable = draw(st.integers(stable, last + 1))
        found.append(AbortedTransaction(draw(st.integers(0, 3)), draw(st.integers(0, last - 1)), last, stable))
    return found


@given(entries=entries(), start=st.integers(0, 200), size=st.integers(1, 200))
def test_a_lookup_is_a_search_through_all_of_it(entries: list[AbortedTransaction], start: int, size: int) -> None:
    index = new_index(entries)
    expected, complete = [], False
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < start + size:
            expected.append(entry)
        if entry.last_stable_offset >= start + size:
            complete = True
            break
    found, is_complete = index.overlapping(start, start + size)
    # An entry that says that all is stable may lie before the range; then nothing later can reach into it.
    assert found == expected or complete
    assert set(expected) <= set(found)
    if not complete:
        assert not is_complete
    index.load(0)
    assert index.entries() == entries


@given(entries=entries(), offset=st.integers(0, 200))
def test_truncation_drops_markers_from_the_offset_on(entries: list[AbortedTransaction], offset: int) -> None:
    index = new_index(entries)
    index.truncate_to(offset)
    kept = [entry for entry in entries if entry.last_offset < offset]
    assert index.entries() == kept
    assert index.last_offset == (kept[-1].last_offset if kept else -1)
    index.load(0)
    assert index.count == len(kept)


@pytest.mark.parametrize(
    "damaged",
    [
        encode(ABORTED)[:-1],
        encode(ABORTED) + bytes(5),
        b"\x00\x01" + encode(ABORTED)[2:],
        encode(ABORTED) + bytes(ENTRY.size),
        encode(ABORTED[::-1]),
        encode([AbortedTransaction(1, 5, 4, 5)]),
        encode([AbortedTransaction(-1, 2, 4, 5)]),
        encode([AbortedTransaction(1, 2, 4, 9)]),
    ],
)
def test_what_cannot_be_right_is_refused(damaged: bytes) -> None:
    index = new_index([])
    index.handle.get().pwrite(damaged, 0)
    with pytest.raises(CorruptIndexError):
        index.load(0)


def test_an_index_does_not_speak_of_what_is_before_its_segment() -> None:
    index = new_index(ABORTED)
    index.load(3)
    with pytest.raises(CorruptIndexError):
        index.load(4)


def test_there_is_no_file_without_an_abort() -> None:
    disk = new_disk()
    log = open_log(disk, DIRECTORY)
    write(log, 1, 0)
    end(log, 1, commit=True)
    end(log, 2, commit=False)  # Which has written nothing.
    assert txnindex_files(disk) == []
    assert log.last_aborted_offset == -1
    log.close()
    assert open_log(disk, DIRECTORY).active.transactions is None


def test_a_log_finds_its_aborted_transactions_over_segments() -> None:
    disk = new_disk()
    log = aborting_log(disk)
    assert txnindex_files(disk) == [f"{0:020d}.txnindex", f"{7:020d}.txnindex"]
    assert log.aborted_transactions(0, 9) == ABORTED
    assert log.aborted_transactions(0, 4) == ABORTED[:1]
    assert log.aborted_transactions(4, 5) == ABORTED[1:]
    assert log.aborted_transactions(9, 20) == []


def test_a_follower_has_the_index_of_its_leader() -> None:
    leader = aborting_log(new_disk())
    disk = new_disk()
    follower = open_log(disk, DIRECTORY)
    for batch in read_all(leader):
        follower.append_as_follower(memoryview(bytearray(batch)), NOW_MS)
        if follower.log_end_offset == 7:
            follower.roll(NOW_MS)
    assert follower.aborted_transactions(0, 9) == ABORTED
    assert disk.read(f"{DIRECTORY}/{7:020d}.txnindex") == encode(ABORTED[1:])


def garbage(disk: CrashDisk, path: str) -> None:
    disk.open(path).pwrite(b"\xff" * 40, 0)


def cut(disk: CrashDisk, path: str) -> None:
    disk.open(path).truncate(7)


def empty(disk: CrashDisk, path: str) -> None:
    disk.open(path).truncate(0)


def remove(disk: CrashDisk, path: str) -> None:
    disk.remove(path)


def too_much(disk: CrashDisk, path: str) -> None:
    """The entry of a marker that never came."""
    size = disk.size(path)
    disk.open(path).pwrite(encode([AbortedTransaction(3, 7, 9, 10)]), size)


@pytest.mark.parametrize("damage", [garbage, cut, empty, remove, too_much])
def test_recovery_makes_the_index_anew(damage: Callable[[CrashDisk, str], None]) -> None:
    disk = new_disk()
    aborting_log(disk)
    for base in (0, 7):
        damage(disk, f"{DIRECTORY}/{base:020d}.txnindex")
    log = open_log(disk, DIRECTORY, clean=False)
    assert log.aborted_transactions(0, 9) == ABORTED
    log.close()
    assert open_log(disk, DIRECTORY).aborted_transactions(0, 9) == ABORTED


@pytest.mark.parametrize("damage", [garbage, cut])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_below_the_recovery_point_is_made_anew(
    damage: Callable[[CrashDisk, str], None], clean: bool
) -> None:
    disk = new_disk()
    log = aborting_log(disk)
    log.close()
    damage(disk, f"{DIRECTORY}/{0:020d}.txnindex")
    log = open_log(disk, DIRECTORY, clean=clean, recovery_point=log.recovery_point)
    assert log.aborted_transactions(0, 9) == ABORTED
    # It is on the medium by now: nobody will look there again.
    assert disk.crash(random.Random(1)).read(f"{DIRECTORY}/{0:020d}.txnindex") == encode(ABORTED[:1])


def test_truncation_takes_the_entries_along() -> None:
    disk = new_disk()
    log = aborting_log(disk)
    log.delete_files(log.truncate_to(8))
    assert log.aborted_transactions(0, 8) == ABORTED[:1]
    assert log.producers.last_stable_offset(8) == 4
    end(log, 2, commit=False)
    assert log.aborted_transactions(0, 9) == ABORTED
    log.delete_files(log.truncate_to(3))
    assert log.aborted_transactions(0, 3) == []
    assert txnindex_files(disk) == [f"{0:020d}.txnindex"]
    end(log, 1, commit=True)
    log.close()
    assert open_log(disk, DIRECTORY).aborted_transactions(0, 4) == []


def test_the_index_goes_with_its_segment() -> None:
    disk = new_disk()
    log = aborting_log(disk)
    dropped = log.drop_segments(log.segments[:1])
    assert txnindex_files(disk) == [f"{0:020d}.txnindex.deleted", f"{7:020d}.txnindex"]
    log.delete_files(dropped)
    assert txnindex_files(disk) == [f"{7:020d}.txnindex"]
    assert log.aborted_transactions(7, 9) == ABORTED[1:]
    log.truncate_fully_and_start_at(20)
    assert log.aborted_transactions(20, 30) == []


@pytest.mark.parametrize("failing_write", [1, 2, 3])
def test_a_full_disk_leaves_neither_an_entry_nor_a_marker(failing_write: int) -> None:
    disk = new_disk()
    log = open_log(disk, DIRECTORY)
    write(log, 1, 0)
    writes = iter(range(1, 100))
    disk.fail_writes = lambda size: (
        OSError(errno.ENOSPC, "No space left on device") if next(writes) == failing_write else None
    )
    with pytest.raises(ApiError, match="no space left"):
        end(log, 1, commit=False)
    disk.fail_writes = lambda size: None
    assert log.aborted_transactions(0, 2) == []
    assert log.producers.first_unstable_offset == 0
    end(log, 1, commit=False)
    write(log, 1, 1)
    end(log, 1, commit=True)
    log.close()
    assert open_log(disk, DIRECTORY).aborted_transactions(0, 4) == [AbortedTransaction(1, 0, 1, 2)]


def test_a_marker_that_begins_a_segment_has_its_entry_there() -> None:
    disk = new_disk()
    log = open_log(disk, DIRECTORY, config=TopicConfig(segment_bytes=200))
    write(log, 1, 0, count=4)
    assert end(log, 1, commit=False) == 4
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert txnindex_files(disk) == [f"{4:020d}.txnindex"]


def test_the_records_of_a_read_bound_the_search() -> None:
    disk = new_disk()
    log = open_log(disk, DIRECTORY, config=TopicConfig(index_interval_bytes=1))
    for number in range(20):
        write(log, 1, number)
        end(log, 1, commit=False)
    first = log.read(0, 1, 40, True)
    assert first is not None
    assert 1 <= len(log.aborted_in(first, 0, 40)) <= 3
    everything = log.read(0, 1 << 20, 40, True)
    assert everything is not None
    assert len(log.aborted_in(everything, 0, 40)) == 20
