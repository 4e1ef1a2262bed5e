"""A disk that loses what was not synced when the power goes."""

from __future__ import annotations

import os
from typing import Any

from ottla.log.disk import RealDisk, RealFile


class ForgetfulFile:
    """A file of which `synced` bytes would survive; a log only grows, so the rest is its tail."""

    def __init__(self, disk: ForgetfulDisk, file: RealFile) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        inode = os.fstat(self._file.fileno()).st_ino
        self._disk.synced[inode] = self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        inode = os.fstat(self._file.fileno()).st_ino
        self._disk.synced[inode] = min(self._disk.synced.get(inode, 0), size)


class ForgetfulDisk(RealDisk):
    """Remembers per file what was synced, and syncs nothing for real. Names last at once, as with a journal."""

    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced: dict[int, int] = {}

    def open(self, path: str, *, create: bool = False, write: bool = True) -> Any:
        return ForgetfulFile(self, super().open(path, create=create, write=write))

    def write_atomically(self, path: str, data: bytes | bytearray | memoryview) -> None:
        with open(path + ".tmp", "wb") as file:
            file.write(data)
        os.replace(path + ".tmp", path)
        self.synced[os.stat(path).st_ino] = len(data)

    def sync_dir(self, path: str) -> None:
        pass

    def power_off(self, directory: str) -> None:
        """Cut every file under `directory` back to what was synced."""
        for folder, _, names in os.walk(directory):
            for name in names:
                path = os.path.join(folder, name)
                survived = self.synced.get(os.stat(path).st_ino, 0)
                if survived < os.path.getsize(path):
                    os.truncate(path, survived)
