"""Ten thousand partitions must not need ten thousand open files."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from ottla.log.disk import File, RealDisk
from ottla.log.handles import FileHandle, OpenFiles
from ottla.model.limits import LOG_FILES_OPEN_MAX


def handles(tmp_path: Path, files: OpenFiles, count: int) -> list[FileHandle]:
    made = [files.handle(str(tmp_path / f"{number}")) for number in range(count)]
    for number, handle in enumerate(made):
        handle.create().pwrite(str(number).encode(), 0)
    return made


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), 8)
    made = handles(tmp_path, files, 50)
    assert len(files) == 8
    for number, handle in enumerate(made):
        assert handle.get().pread(10, 0) == str(number).encode()
        assert len(files) <= 8


def test_a_file_in_use_is_closed_after_those_that_nobody_uses(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), 4)
    made = handles(tmp_path, files, 30)
    busy = made[0]
    first = busy.get()
    for handle in made[1:]:
        handle.get()
        assert busy.get() is first


def test_a_consumer_keeps_reading_a_file_that_was_let_go(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), 2)
    made = handles(tmp_path, files, 1)
    held = made[0].get()
    handles(tmp_path / "..", files, 0)
    made[0].remove()
    assert held.pread(10, 0) == b"0"
    with pytest.raises(FileNotFoundError):
        made[0].get()


def test_a_renamed_file_is_found_under_its_new_name(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), 8)
    (handle,) = handles(tmp_path, files, 1)
    handle.rename(str(tmp_path / "renamed"))
    handle.forget()
    assert handle.get().pread(10, 0) == b"0"
    missing = files.handle(str(tmp_path / "missing"))
    missing.rename(str(tmp_path / "still missing"))
    assert missing.path.endswith("still missing")


def test_a_file_that_took_the_name_while_it_was_opened_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    class RenamesWhileOpening(RealDisk):
        def open(self, path: str, *, create: bool = False, write: bool = True) -> File:  # type: ignore[override]
            if not create and path.endswith("/0"):
                handle.rename(str(tmp_path / "0.deleted"))
                super().open(path, create=True).pwrite(b"another file", 0)
            return super().open(path, create=create, write=write)

    files = OpenFiles(RenamesWhileOpening(), 8)
    (handle,) = handles(tmp_path, files, 1)
    handle.forget()
    assert handle.get().pread(20, 0) == b"0"


def test_creating_over_an_old_file_begins_empty(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), 8)
    (handle,) = handles(tmp_path, files, 1)
    assert handle.create().size() == 0


def test_closing_forgets_every_file(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), 8)
    handles(tmp_path, files, 5)
    files.close()
    assert len(files) == 0


def test_the_bound_leaves_room_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert OpenFiles(RealDisk()).files_max == 512
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert OpenFiles(RealDisk()).files_max == LOG_FILES_OPEN_MAX


def test_slow_readers_of_many_partitions_leave_files_to_the_others() -> None:
    assert [OpenFiles(RealDisk(), files).answer_slices_max for files in (16, 128, 512, 1 << 20)] == [4, 16, 64, 512]
