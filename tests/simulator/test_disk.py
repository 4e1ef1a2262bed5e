"""What a simulated disk keeps and what it may forget."""

from __future__ import annotations

import random

import pytest

from simulator.disk import SECTOR_BYTES, Medium, ProcessKilled
from simulator.mount import Mount


def new_mount() -> Mount:
    mount = Mount(Medium(lambda: 0))
    mount.makedirs("/data")
    mount.sync_dir("/")
    return mount


def contents_after_power_loss(mount: Mount, path: str) -> set[bytes | None]:
    """Everything that may be found there."""
    found: set[bytes | None] = set()
    before = mount.medium.root
    for seed in range(200):
        mount.medium.root = before
        mount.medium.lose_power(random.Random(seed))
        found.add(mount.read(path) if mount.exists(path) else None)
    return found


def test_what_was_synced_stays_with_its_name() -> None:
    mount = new_mount()
    file = mount.open("/data/a", create=True)
    file.pwrite(b"hello", 0)
    file.sync()
    mount.sync_dir("/data")
    assert contents_after_power_loss(mount, "/data/a") == {b"hello"}


def test_a_name_needs_its_directory_synced() -> None:
    mount = new_mount()
    file = mount.open("/data/a", create=True)
    file.pwrite(b"hello", 0)
    file.sync()
    assert contents_after_power_loss(mount, "/data/a") == {None, b"hello"}


def test_unsynced_sectors_are_lost_one_by_one_and_read_as_zeros() -> None:
    mount = new_mount()
    file = mount.open("/data/a", create=True)
    mount.sync_dir("/data")
    file.pwrite(b"x" * SECTOR_BYTES * 2, 0)
    zeros, filled = bytes(SECTOR_BYTES), b"x" * SECTOR_BYTES
    found = contents_after_power_loss(mount, "/data/a")
    assert {b"", zeros + filled, filled + zeros, filled + filled} <= found
    assert all(part in (zeros, filled) for data in found if data for part in (data[:SECTOR_BYTES],))


def test_a_killed_process_leaves_what_it_wrote_and_writes_no_more() -> None:
    mount = new_mount()
    file = mount.open("/data/a", create=True)
    file.pwrite(b"hello", 0)
    mount.alive = False
    with pytest.raises(ProcessKilled):
        file.pwrite(b"again", 0)
    assert Mount(mount.medium).read("/data/a") == b"hello"


def test_an_atomic_write_leaves_the_old_or_the_new() -> None:
    mount = new_mount()
    mount.write_atomically("/data/a", b"old")
    mount.faults.kill_after = mount.faults.operations + 4
    with pytest.raises(ProcessKilled):
        mount.write_atomically("/data/a", b"new")
    assert contents_after_power_loss(Mount(mount.medium), "/data/a") <= {b"old", b"new"}


def test_after_a_failed_sync_the_bytes_are_gone_though_the_next_one_succeeds() -> None:
    mount = new_mount()
    file = mount.open("/data/a", create=True)
    mount.sync_dir("/data")
    file.pwrite(b"hello", 0)
    mount.faults.fail_syncs = True
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    mount.faults.fail_syncs = False
    file.sync()
    mount.medium.drop_cache()
    assert Mount(mount.medium).read("/data/a") == b""


def test_a_sync_fails_when_it_may_and_so_do_all_after_it() -> None:
    mount = new_mount()
    faults, told = mount.faults, []
    file = mount.open("/data/a", create=True)
    faults.fail_syncs, faults.may_fail_sync, faults.on_failed_sync = True, lambda: False, lambda: told.append(1)
    file.sync()
    faults.disarm()
    faults.may_fail_sync = lambda: True
    file.sync()
    assert told == []
    faults.fail_syncs = True
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        faults.disarm()
        faults.may_fail_sync = lambda: False
    assert told == [1, 1]


def test_a_full_disk_takes_part_of_a_write() -> None:
    mount = new_mount()
    file = mount.open("/data/a", create=True)
    mount.faults.full = True
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"12345678", 0)
    assert file.size() == 4


def test_what_is_on_the_medium_is_known_without_a_crash() -> None:
    mount = new_mount()
    file = mount.open("/data/a", create=True)
    file.pwrite(b"hello", 0)
    assert mount.medium.durable_bytes("/data/a") is None
    file.sync()
    mount.sync_dir("/data")
    file.pwrite(b"j", 0)
    assert mount.medium.durable_bytes("/data/a") == b"hello"
    assert mount.read("/data/a") == b"jello"
    assert mount.medium.durable_bytes("/data/b") is None


def test_rot_changes_one_bit_of_a_file_that_has_a_checksum() -> None:
    mount = new_mount()
    for name in ("a.log", "a.index"):
        file = mount.open(f"/data/{name}", create=True)
        file.pwrite(bytes(100), 0)
        file.sync()
    for number in (0, 12345, 1 << 29):
        before = mount.read("/data/a.log")
        assert mount.medium.rot(number, (".log",)) == "/data/a.log"
        differing = [one ^ other for one, other in zip(before, mount.read("/data/a.log"), strict=True) if one != other]
        assert [bin(bits).count("1") for bits in differing] == [1]
    assert mount.read("/data/a.index") == bytes(100)
    assert mount.medium.rot(0, (".checkpoint",)) is None
