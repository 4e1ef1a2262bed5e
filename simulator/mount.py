"""A process's way to its disk: the `Disk` of `ottla.log.disk`, on a simulated medium. It ends with the process."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.log.disk import TEMPORARY_SUFFIX, Bytes
from ottla.model.errors import StorageError
from simulator.disk import DiskFaults, Entry, Folder, Inode, Medium, ProcessKilled, SimulatedFile


class MountLock:
    """A lock file, held until it is released or the process ends."""

    __slots__ = ("_mount", "_path")

    def __init__(self, mount: Mount, path: str) -> None:
        self._mount = mount
        self._path = path

    def release(self) -> None:
        self._mount.locks.pop(self._path, None)


class Mount:
    """The file system as one process sees it."""

    __slots__ = ("alive", "faults", "locks", "medium")

    fill_bytes = 64
    """Little enough that the small segments of a simulation have room behind their ends."""

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        self.faults = DiskFaults()
        self.alive = True
        self.locks: dict[str, None] = {}

    # -- faults

    def changing(self, path: str) -> None:
        """Before whatever changes the medium."""
        if not self.alive:
            raise ProcessKilled
        if self.faults.count():
            self.faults.on_kill()
            raise ProcessKilled

    def writing(self, path: str, inode: Inode, data: bytes, position: int) -> None:
        faults = self.faults
        if not self.alive:
            raise ProcessKilled
        if faults.count():
            inode.write(position, data[: len(data) // 2])
            faults.on_kill()
            raise ProcessKilled
        if faults.full and position + len(data) > len(inode.data):
            inode.write(position, data[: len(data) // 2])
            self.no_space(path)
        if faults.fail_writes:
            self.fail(path)
        inode.write(position, data)
        inode.modified_us = self.medium.now_us()

    def fail(self, path: str) -> None:
        if not self.alive:
            raise ProcessKilled
        self.faults.failed += 1
        raise OSError(errno.EIO, "Input/output error", path)

    def no_space(self, path: str) -> None:
        self.faults.failed += 1
        raise OSError(errno.ENOSPC, "No space left on device", path)

    # -- names

    def _find(self, path: str) -> Entry:
        entry = self.medium.find(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return entry

    def _file(self, path: str) -> Inode:
        entry = self._find(path)
        if isinstance(entry, Folder):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return entry

    def _folder(self, path: str) -> Folder:
        entry = self._find(path)
        if isinstance(entry, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return entry

    def open(self, path: str, *, create: bool = False, write: bool = True) -> SimulatedFile:
        if not self.alive:
            raise ProcessKilled
        if create and self.medium.find(path) is None:
            self._create(path)
        return SimulatedFile(self, self._file(path), path)

    def _create(self, path: str) -> Inode:
        folder, name = self._parent(path)
        self.changing(path)
        if self.faults.full:
            self.no_space(path)
        if self.faults.fail_writes:
            self.fail(path)
        inode = Inode()
        inode.modified_us = self.medium.now_us()
        folder.change((name, inode))
        return inode

    def _parent(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def exists(self, path: str) -> bool:
        return self.medium.find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self.medium.find(path), Folder)

    def listdir(self, path: str) -> list[str]:
        if self.faults.fail_reads:
            self.fail(path)
        return sorted(self._folder(path).entries)

    def makedirs(self, path: str) -> None:
        folder = self.medium.root
        for name in path.split("/"):
            if not name:
                continue
            entry = folder.entries.get(name)
            if isinstance(entry, Inode):
                raise FileExistsError(errno.EEXIST, "File exists", path)
            if entry is None:
                self.changing(path)
                if self.faults.full or self.faults.fail_writes:
                    self.no_space(path)
                entry = Folder()
                folder.change((name, entry))
            folder = entry

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_us // 1000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._file(path).modified_us = time_ms * 1000

    def rename(self, source: str, target: str) -> None:
        entry = self._find(source)
        source_folder, source_name = self._parent(source)
        target_folder, target_name = self._parent(target)
        if isinstance(target_folder.entries.get(target_name), Folder):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", target)
        self.changing(source)
        if source_folder is target_folder:
            source_folder.change((source_name, None), (target_name, entry))
        else:
            target_folder.change((target_name, entry))
            source_folder.change((source_name, None))

    def remove(self, path: str) -> None:
        entry = self.medium.find(path)
        if isinstance(entry, Inode):
            folder, name = self._parent(path)
            self.changing(path)
            folder.change((name, None))

    def remove_tree(self, path: str) -> None:
        entry = self.medium.find(path)
        if not isinstance(entry, Folder):
            return
        for name in sorted(entry.entries):
            if isinstance(entry.entries[name], Folder):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.changing(path)
        folder, name = self._parent(path)
        folder.change((name, None))

    # -- syncs

    def sync_dir(self, path: str) -> None:
        folder = self._folder(path)
        self.changing(path)
        if self.faults.sync_fails():
            self.fail(path)
        folder.sync()

    def read(self, path: str) -> bytes:
        return self.open(path, write=False).pread(self.size(path), 0)

    def write_atomically(self, path: str, data: Bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        inode = self._create(temporary) if self.medium.find(temporary) is None else self._file(temporary)
        file = SimulatedFile(self, inode, temporary)
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
        self.rename(temporary, path)
        self.sync_dir(path.rpartition("/")[0])

    # -- locks and room

    def lock(self, path: str) -> MountLock:
        if path in self.locks:
            raise StorageError(path.rpartition("/")[0], "already in use by another broker")
        self.open(path, create=True)
        self.locks[path] = None
        return MountLock(self, path)

    @contextmanager
    def exclusively(self, path: str) -> Iterator[None]:
        self._folder(path)
        yield

    def free_bytes(self, path: str) -> int:
        return 0 if self.faults.full else self.medium.capacity_bytes - self.medium.used_bytes()

    def total_bytes(self, path: str) -> int:
        return self.medium.capacity_bytes
