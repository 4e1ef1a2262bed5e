"""A disk in memory that knows what a crash may take: a durable image, and everything that was not synced since.

A crash keeps any part of it that a real disk could: each sector as it was at any moment since the sync, so that one
that never arrived reads as zeros; names of files in the order in which they changed, up to any point, as a journal of
the whole file system has them (ext4, XFS), or each name as it was at any moment, as where a sync logs single files
(btrfs, F2FS). Not even there is a name given to a new file before the old one has lost it: a file that was renamed is
found under one of its two names, and no file is lost that was not removed.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from ottla.log.disk import Bytes

SECTOR = 512


NameChange: TypeAlias = dict[str, "Inode | None"]
"""Names that appear, with their file, or disappear, at once: a renamed file has one of its names."""


class PowerCut(BaseException):
    """Nothing reaches the disk any more. No error that a program could handle."""


class Inode:
    """A file's bytes as everybody sees them, as the medium has them, and the writes in between."""

    def __init__(self, durable: bytes = b"") -> None:
        self.data = bytearray(durable)
        self.durable = bytes(durable)
        self.pending: list[tuple[int, bytes] | int] = []
        self.modified_ms = 0

    def after_crash(self, rng: random.Random) -> bytes:
        """Each sector as it was at some moment since the last sync, and the size as it was at some moment."""
        size_at = rng.randint(0, len(self.pending))
        image = bytearray(self.durable)
        versions = [bytes(image)]
        for change in self.pending:
            if isinstance(change, int):
                _resize(image, change)
            else:
                position, data = change
                _resize(image, max(len(image), position + len(data)))
                image[position : position + len(data)] = data
            versions.append(bytes(image))
        kept = bytearray(len(versions[size_at]))
        for at in range(0, len(kept), SECTOR):
            version = versions[rng.randint(0, len(self.pending))]
            sector = version[at : min(at + SECTOR, len(kept))]
            kept[at : at + len(sector)] = sector
        return bytes(kept)


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


class MemoryFile:
    """An open file."""

    def __init__(self, disk: CrashDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def pread(self, size: int, position: int) -> bytes:
        self._disk.bytes_read += size
        return bytes(self._inode.data[position : position + size])

    def pwrite(self, data: Bytes, position: int) -> None:
        error = self._disk.fail_writes(len(data))
        if error is not None:
            self._write(bytes(data[: len(data) // 2]), position)
            raise error
        self._write(bytes(data), position)

    def pwritev(self, pieces: Sequence[Bytes], position: int) -> None:
        self.pwrite(b"".join(pieces), position)

    def _write(self, data: bytes, position: int) -> None:
        self._disk.about_to_change()
        _resize(self._inode.data, max(len(self._inode.data), position + len(data)))
        self._inode.data[position : position + len(data)] = data
        self._inode.pending.append((position, data))

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._disk.about_to_change()
        _resize(self._inode.data, size)
        self._inode.pending.append(size)

    def reserve(self, start: int, end: int) -> None:
        error = self._disk.fail_writes(end - start)
        if error is not None:
            raise error

    def sync(self) -> None:
        self._disk.before_sync()
        self._disk.about_to_change()
        self._inode.durable = bytes(self._inode.data)
        self._inode.pending.clear()

    def close(self) -> None:
        pass


class MemoryLock:
    def __init__(self, disk: CrashDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class CrashDisk:
    """The disk. Directories are flat: a name is durable when its directory was synced."""

    def __init__(self, fill_bytes: int = 0) -> None:
        self.fill_bytes = fill_bytes
        self.files: dict[str, Inode] = {}
        self.directories: dict[str, None] = {"/": None}
        self.durable: dict[str, Inode] = {}
        self.durable_directories: dict[str, None] = {"/": None}
        self.changes: dict[str, list[NameChange]] = {}
        """Per directory, in order."""
        self.locks: set[str] = set()
        self._exclusive = threading.RLock()
        self.bytes_read = 0
        self.fail_writes: Callable[[int], OSError | None] = lambda size: None
        self.fail_syncs: Callable[[], OSError | None] = lambda: None
        self.changes_left: int | None = None
        """After so many writes, syncs and changes of names the power fails."""

    # -- faults

    def about_to_change(self) -> None:
        if self.changes_left is not None:
            if self.changes_left <= 0:
                raise PowerCut
            self.changes_left -= 1

    def before_sync(self) -> None:
        error = self.fail_syncs()
        if error is not None:
            raise error

    def crash(self, rng: random.Random, *, names_in_order: bool = True) -> CrashDisk:
        """What is there when the power comes back."""
        after = CrashDisk(self.fill_bytes)
        after.directories = dict(self.durable_directories)
        kept = dict(self.durable)
        for directory in sorted(self.changes):
            changes = self.changes[directory]
            if directory in self.directories and directory not in after.directories and rng.random() < 0.5:
                after.directories[directory] = None
            for change in _kept_in_order(changes, rng) if names_in_order else _kept_of_each_name(changes, rng):
                _apply(change, kept)
        images: dict[int, Inode] = {}
        for path, inode in kept.items():
            if _parent(path) in after.directories:
                after.files[path] = images.setdefault(id(inode), Inode(inode.after_crash(rng)))
        after.durable = dict(after.files)
        after.durable_directories = dict(after.directories)
        return after

    def crash_with_everything(self) -> CrashDisk:
        """A crash that takes nothing: the files as everybody saw them, and no mark of a clean stop."""
        after = CrashDisk(self.fill_bytes)
        after.directories = dict(self.directories)
        after.files = {path: Inode(bytes(inode.data)) for path, inode in self.files.items()}
        after.durable, after.durable_directories = dict(after.files), dict(after.directories)
        return after

    # -- the Disk protocol

    def open(self, path: str, *, create: bool = False, write: bool = True) -> MemoryFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if _parent(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            error = self.fail_writes(0)
            if error is not None:
                raise error
            self._name(path, {path: Inode()})
        return MemoryFile(self, self.files[path])

    def _name(self, path: str, change: NameChange) -> None:
        self.about_to_change()
        _apply(change, self.files)
        self.changes.setdefault(_parent(path), []).append(change)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def is_dir(self, path: str) -> bool:
        return path in self.directories

    def listdir(self, path: str) -> list[str]:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        entries = [*self.files, *self.directories]
        return sorted(entry.rpartition("/")[2] for entry in entries if entry != path and _parent(entry) == path)

    def makedirs(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            directory = "/" + "/".join(parts[:depth])
            self.directories.setdefault(directory, None)
            self.changes.setdefault(directory, [])

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        return self.open(path)._inode.modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self.open(path)._inode.modified_ms = time_ms

    def rename(self, source: str, target: str) -> None:
        if source in self.directories:
            self._rename_directory(source, target)
            return
        inode = self.open(source)._inode
        self._name(target, {target: inode, source: None})

    def _rename_directory(self, source: str, target: str) -> None:
        for directories in (self.directories, self.durable_directories):
            if source in directories:
                del directories[source]
                directories[target] = None
        for files in (self.files, self.durable):
            for path in [path for path in files if _parent(path) == source]:
                files[target + path[len(source) :]] = files.pop(path)
        moved = self.changes.pop(source, [])
        self.changes[target] = [
            {target + path[len(source) :]: inode for path, inode in change.items()} for change in moved
        ]

    def remove(self, path: str) -> None:
        if path in self.files:
            self._name(path, {path: None})

    def remove_tree(self, path: str) -> None:
        for file in [file for file in self.files if file.startswith(path + "/")]:
            del self.files[file]
            self.durable.pop(file, None)
        for directories in (self.directories, self.durable_directories):
            directories.pop(path, None)
        self.changes.pop(path, None)

    def sync_dir(self, path: str) -> None:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.before_sync()
        self.about_to_change()
        for change in self.changes.pop(path, []):
            _apply(change, self.durable)
        for directory in self.directories:
            if directory == path or _parent(directory) == path:
                self.durable_directories[directory] = None

    def read(self, path: str) -> bytes:
        return self.open(path).pread(self.size(path), 0)

    def write_atomically(self, path: str, data: Bytes) -> None:
        self._name(path, {path + ".tmp": Inode()})
        file = self.open(path + ".tmp")
        file.pwrite(data, 0)
        file.sync()
        self.rename(path + ".tmp", path)
        self.sync_dir(_parent(path))

    def lock(self, path: str) -> MemoryLock:
        self.open(path, create=True)
        self.locks.add(path)
        return MemoryLock(self, path)

    def exclusively(self, path: str) -> AbstractContextManager[object]:
        return self._exclusive

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def total_bytes(self, path: str) -> int:
        return 1 << 41


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _kept_in_order(changes: list[NameChange], rng: random.Random) -> list[NameChange]:
    return changes[: rng.randint(0, len(changes))]


def _kept_of_each_name(changes: list[NameChange], rng: random.Random) -> list[NameChange]:
    """Any of them, as long as what happened to its names before is kept, too."""
    chance = rng.choice([0.2, 0.5, 0.8, 0.95])
    kept: list[NameChange] = []
    lost: set[str] = set()
    for change in changes:
        if lost.isdisjoint(change) and rng.random() < chance:
            kept.append(change)
        else:
            lost.update(change)
    return kept


def _apply(change: NameChange, files: dict[str, Inode]) -> None:
    for path, inode in change.items():
        if inode is None:
            files.pop(path, None)
        else:
            files[path] = inode
