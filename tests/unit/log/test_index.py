"""An index must find the place at or before what is asked for, and know when it cannot be trusted."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from tests.unit.log.crash_disk import CrashDisk


def memory_index() -> OffsetIndex:
    disk = CrashDisk()
    disk.makedirs("/d")
    index = OffsetIndex(OpenFiles(disk, 8).handle("/d/00000000000000000000.index"))
    index.create()
    return index


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), 8)
    offsets = OffsetIndex(files.handle(str(tmp_path / "a.index")))
    offsets.create()
    offsets.append(5, 4242)
    offsets.append(9, 9000)
    offsets.write_pending()
    assert (tmp_path / "a.index").read_bytes().hex() == "0000000500001092" + "0000000900002328"
    times = TimeIndex(files.handle(str(tmp_path / "a.timeindex")))
    times.create()
    times.append_if_later(1_700_000_000_000, 5)
    times.append_if_later(1_700_000_000_000, 7)
    times.append_if_later(-1, 8)
    times.write_pending()
    assert (tmp_path / "a.timeindex").read_bytes().hex() == "0000018bcfe56800" + "00000005"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5000)), max_size=800),
    st.lists(st.integers(-5, 40_000), min_size=1, max_size=20),
    st.booleans(),
)
def test_a_lookup_finds_the_last_entry_that_is_not_beyond(
    steps: list[tuple[int, int]], wanted: list[int], reloaded: bool
) -> None:
    index = memory_index()
    entries: list[tuple[int, int]] = []
    key = position = 0
    for key_step, position_step in steps:
        key, position = key + key_step, position + position_step
        index.append(key, position)
        entries.append((key, position))
    if reloaded:
        index.write_pending()
        index.load()
    assert index.count == len(entries)
    assert (index.last_key, index.last_value) == (entries[-1] if entries else (-1, 0))
    assert index.entries() == entries
    keys = [key for key, _ in entries]
    for target in wanted:
        found = bisect_right(keys, target)
        assert index.floor(target) == (entries[found - 1] if found else None)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 400), st.integers(0, 900))
def test_cutting_off_keeps_exactly_what_is_below(count: int, key: int) -> None:
    index = memory_index()
    entries = [(2 * number + 2, 10 * number + 1) for number in range(count)]
    for entry in entries:
        index.append(*entry)
    index.truncate_below(key)
    kept = [entry for entry in entries if entry[0] < key]
    assert index.entries() == kept
    index.append(2000, 9999)
    index.write_pending()
    index.load()
    assert index.entries() == [*kept, (2000, 9999)]


def test_entries_that_cannot_be_written_wait_and_are_not_lost() -> None:
    disk = CrashDisk()
    disk.makedirs("/d")
    index = OffsetIndex(OpenFiles(disk, 8).handle("/d/a.index"))
    index.create()
    disk.fail_writes = lambda size: OSError(28, "No space left on device")
    for number in range(1, 400):
        index.append(number, number)
    assert index.floor(123) == (123, 123)
    with pytest.raises(OSError, match="No space"):
        index.write_pending()
    disk.fail_writes = lambda size: None
    index.write_pending()
    index.load()
    assert index.count == 399


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\0\0\0", id="torn"),
        pytest.param(bytes(8 * 20), id="zeros, as Kafka preallocates"),
        pytest.param(bytes.fromhex("00000005000010920000000000000000"), id="a zero tail"),
        pytest.param(bytes.fromhex("00000005000010920000000300002000"), id="keys that fall"),
        pytest.param(bytes.fromhex("ffffffff00001092"), id="a negative key"),
    ],
)
def test_a_damaged_index_is_not_believed(content: bytes) -> None:
    index = memory_index()
    index.handle.get().pwrite(content, 0)
    with pytest.raises(CorruptIndexError):
        index.load()


def test_damage_in_the_middle_is_seen_when_all_of_it_is_checked() -> None:
    index = memory_index()
    for number in range(1, 300):
        index.append(number, number)
    index.write_pending()
    index.handle.get().pwrite(bytes(512), 512)
    index.load()
    with pytest.raises(CorruptIndexError):
        index.check_rising()
