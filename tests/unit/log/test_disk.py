"""The real disk keeps the promises that the log builds on."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ottla.log.disk import RealDisk
from ottla.model.errors import StorageError


def test_a_file_stays_readable_while_a_slow_consumer_holds_it(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "a"), create=True)
    file.pwrite(b"0123456789", 0)
    disk.remove(str(tmp_path / "a"))
    assert file.pread(4, 3) == b"3456"


def test_a_descriptor_is_closed_when_nobody_holds_the_file(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    descriptor = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_closing_twice_does_not_close_the_descriptor_of_another_file(tmp_path: Path) -> None:
    disk = RealDisk()
    first = disk.open(str(tmp_path / "a"), create=True)
    first.close()
    second = disk.open(str(tmp_path / "b"), create=True)
    first.close()
    del first
    second.pwrite(b"x", 0)
    assert second.size() == 1


def test_a_write_that_the_system_cuts_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: whole(fd, bytes(data)[:3], position))
    file.pwrite(b"0123456789", 2)
    assert file.pread(100, 0) == b"\0\0" + b"0123456789"


def test_a_system_that_writes_nothing_is_an_error_and_not_an_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: 0)
    with pytest.raises(OSError, match="wrote nothing"):
        file.pwrite(b"0123456789", 0)


def test_a_checkpoint_is_replaced_whole_even_over_the_rest_of_a_crash(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "checkpoint")
    (tmp_path / "checkpoint.tmp").write_bytes(b"longer garbage from a crash before")
    disk.write_atomically(path, b"first")
    disk.write_atomically(path, b"two")
    assert disk.read(path) == b"two"
    assert disk.listdir(str(tmp_path)) == ["checkpoint"]


def test_two_brokers_cannot_use_one_directory(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    with pytest.raises(StorageError, match="already in use by another broker"):
        disk.lock(path)
    lock.release()
    disk.lock(path).release()


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.remove(str(tmp_path / "nothing"))
    disk.remove_tree(str(tmp_path / "nothing"))
    disk.makedirs(str(tmp_path / "a" / "b"))
    disk.makedirs(str(tmp_path / "a" / "b"))
    assert disk.is_dir(str(tmp_path / "a" / "b"))
    disk.remove_tree(str(tmp_path / "a"))
    assert not disk.exists(str(tmp_path / "a"))


def test_sizes_times_and_space_are_told(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    file.pwrite(b"12345", 0)
    file.truncate(3)
    file.sync()
    disk.sync_dir(str(tmp_path))
    assert (disk.size(path), file.size()) == (3, 3)
    assert abs(disk.modified_ms(path) - os.stat(path).st_mtime * 1000) < 2
    disk.set_modified_ms(path, 1_700_000_000_123)
    assert disk.modified_ms(path) == 1_700_000_000_123
    assert 0 < disk.free_bytes(path) <= disk.total_bytes(path)
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "other"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.open(path, write=False).pwrite(b"x", 0)


def test_only_one_thread_at_a_time_is_let_in(tmp_path: Path) -> None:
    disk = RealDisk()
    inside: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        for _ in range(50):
            with disk.exclusively(str(tmp_path)):
                inside.append(1)
                most = max(most, len(inside))
                os.stat(tmp_path)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
