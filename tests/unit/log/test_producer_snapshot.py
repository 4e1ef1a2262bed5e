"""Snapshots carry what idempotence and open transactions need over a restart, in Kafka's format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.producer_snapshot import CorruptSnapshotError, SnapshotEntry, decode, encode
from ottla.log.snapshot_files import SnapshotFiles
from tests.unit.log.crash_disk import CrashDisk

I16, I32, I64 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
BATCHES = st.lists(st.tuples(I32, I32, I64, I64, I64), max_size=5).map(tuple)
ENTRIES = st.builds(SnapshotEntry, I64, I16, I32, I64, I32, I64, I32, I64, BATCHES)
ENTRY = SnapshotEntry(7, 1, 89, 179, 2, 1_700_000_000_592, -1, -1)


@given(st.lists(ENTRIES, max_size=20))
def test_what_is_written_is_read(entries: list[SnapshotEntry]) -> None:
    assert decode(encode(entries)) == entries


def test_the_bytes_are_kafkas() -> None:
    assert encode([ENTRY]).hex() == (
        "0001" + "9334e80a" + "00000001" + "0000000000000007" + "0001" + "00000059" + "00000000000000b3" + "00000002"
        "0000018bcfe56a50" + "ffffffff" + "ffffffffffffffff"
    )  # fmt: skip


def test_what_is_no_batch_of_a_producer_is_not_believed() -> None:
    with pytest.raises(CorruptSnapshotError):
        decode(encode([ENTRY._replace(batches=((1, 2, 3, 4, 5),) * 6)]))


@given(st.data())
def test_a_damaged_snapshot_is_not_believed(data: st.DataObject) -> None:
    whole = encode([ENTRY, ENTRY._replace(producer_id=8, batches=((80, 86, 170, 176, 5),))])
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptSnapshotError):
        decode(whole[:cut])
    flipped = bytearray(whole)
    flipped[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshotError):
        decode(bytes(flipped))


def snapshot_files() -> tuple[CrashDisk, SnapshotFiles]:
    disk = CrashDisk()
    disk.makedirs("/d")
    return disk, SnapshotFiles("/d", disk)


def test_an_older_snapshot_serves_when_the_newest_is_torn() -> None:
    disk, files = snapshot_files()
    for offset in (10, 30, 20):
        files.write(offset, [ENTRY._replace(last_offset=offset)])
    assert list(files.offsets) == [10, 20, 30]
    disk.open(files.path(30)).truncate(20)
    found = files.read_latest(35)
    assert found is not None
    assert found[0] == 20
    assert list(files.offsets) == [10, 20]
    assert not disk.exists(files.path(30))
    assert files.read_latest(5) is None


def test_snapshots_of_the_future_and_of_the_deleted_past_go() -> None:
    disk, files = snapshot_files()
    for offset in (5, 10, 20, 30):
        files.write(offset, [])
    files.remove_outside(5, 20)
    assert list(files.offsets) == [10, 20]
    assert disk.listdir("/d") == ["00000000000000000010.snapshot", "00000000000000000020.snapshot"]


def test_only_snapshots_of_segments_and_of_the_end_are_kept() -> None:
    _, files = snapshot_files()
    for offset in (10, 15, 20, 25, 27):
        files.write(offset, [])
    files.remove_strays([0, 10, 20])
    assert list(files.offsets) == [10, 20, 27]
    files.remove_strays([0, 10, 40])
    assert list(files.offsets) == [10]
