"""The only door from the log to a file system.

`File` and `Disk` are what the log asks for; `RealDisk` answers with the operating system, a simulator answers with a
disk that forgets what was not synced. Everything here is synchronous, raises `OSError` as the system does, and may be
called from any thread. What may block for long (`sync`, `remove_tree`, `write_atomically`) says so, and is the
caller's to move off the loop.

What survives a crash: the bytes of a file after its `sync`; the *name* of a new, renamed or removed file only after
`sync_dir` of its directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Final, Protocol, TypeAlias

from ottla.model.errors import StorageError

Bytes: TypeAlias = bytes | bytearray | memoryview

TEMPORARY_SUFFIX: Final = ".tmp"
FALLOC_FL_KEEP_SIZE: Final = 1
CANNOT_RESERVE: Final = (0, errno.EOPNOTSUPP, errno.ENOSYS)
"""What is no error of `reserve`: that it did it, and that nobody can."""


class File(Protocol):
    """An open file, addressed by position; it has no cursor, so threads may share it."""

    def fileno(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write all of `data` or raise; after a raise any part of it may be there."""

    def pwritev(self, pieces: Sequence[Bytes], position: int) -> None:
        """The same of `pieces`, one behind the other; not more than a system takes at once."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, start: int, end: int) -> None:
        """Take room for the bytes from `start` to `end`, and stay as long as it is.

        `truncate` gives back what is not used. Nothing happens where the file system knows no such thing.
        """

    def sync(self) -> None:
        """Return when the bytes are on the medium. Blocks. After a failure the file must not be trusted again."""

    def close(self) -> None:
        """Close now. Seldom needed: a file closes itself when nobody holds it any more."""


class Lock(Protocol):
    """A lock on a directory that ends with the process at the latest."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system, seen from one broker. Paths are absolute strings."""

    @property
    def fill_bytes(self) -> int:
        """In steps of how much a file grows best, see `log.room`; 0 if it makes no difference."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def makedirs(self, path: str) -> None:
        """Make a directory with its parents; no error when it is there."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in ms since 1970."""

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Let the file seem to have been written last at that time."""

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing the target atomically."""

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is gone already."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; no error when it is gone already. Blocks."""

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the medium. Blocks."""

    def read(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: Bytes) -> None:
        """Replace a small file so that a crash leaves the old one or the new one whole. Blocks on two syncs."""

    def lock(self, path: str) -> Lock:
        """Take the lock file at `path`, or raise StorageError when another process holds it."""

    def exclusively(self, path: str) -> AbstractContextManager[object]:
        """One thread at a time per directory, for what must not be done twice at once. Blocks."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


class RealFile:
    """A file descriptor that lives as long as its last holder: a `FileSlice` on its way to a client is one."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, flags, 0o644)

    def fileno(self) -> int:
        return self._fd

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def pwrite(self, data: Bytes, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            self._pwrite_rest(data, position, written)

    def pwritev(self, pieces: Sequence[Bytes], position: int) -> None:
        written = os.pwritev(self._fd, pieces, position)
        if written != sum(map(len, pieces)):
            self._pwrite_rest(b"".join(pieces), position, written)

    def _pwrite_rest(self, data: Bytes, position: int, written: int) -> None:
        view = memoryview(data)
        while written < len(view):
            step = os.pwrite(self._fd, view[written:], position + written)
            if step == 0:
                raise OSError(f"{self.path}: the system wrote nothing and gave no reason")
            written += step

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, start: int, end: int) -> None:
        error = _fallocate()(self._fd, FALLOC_FL_KEEP_SIZE, start, end - start)
        if error not in CANNOT_RESERVE:
            raise OSError(error, os.strerror(error), self.path)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # Nobody is left to hear of an error here, and whoever cared for the bytes has synced them.
        with contextlib.suppress(OSError):
            self.close()

    def __repr__(self) -> str:
        return f"RealFile({self.path!r})"


class RealLock:
    """An flock: the kernel drops it when the process ends, however it ends."""

    __slots__ = ("_file",)

    def __init__(self, file: RealFile) -> None:
        self._file = file

    def release(self) -> None:
        # A process that was forked meanwhile has a copy of the descriptor, and would keep the lock.
        fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)
        self._file.close()


class RealDisk:
    """The operating system's file system."""

    __slots__ = ()

    fill_bytes = 32 << 10 if sys.platform == "linux" else 0
    """Eight pages: the most that Linux hands out from what was used a moment ago; more may have to be found first."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> RealFile:
        flags = os.O_RDWR if write else os.O_RDONLY
        return RealFile(path, flags | os.O_CREAT if create else flags)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        file = self.open(path, write=False)
        return file.pread(file.size(), 0)

    def write_atomically(self, path: str, data: Bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        file = RealFile(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        file.pwrite(data, 0)
        file.sync()
        file.close()
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def lock(self, path: str) -> RealLock:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            # Without a cause: nothing is wrong with the directory, and who goes on without it was set up wrongly.
            raise StorageError(os.path.dirname(path), "already in use by another broker") from None
        except OSError:
            file.close()
            raise
        return RealLock(file)

    @contextlib.contextmanager
    def exclusively(self, path: str) -> Iterator[None]:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Each thread has a description of its own, so they exclude each other; closing it lets the next one in.
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def total_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """Linux's fallocate(fd, mode, start, length), as a number of an error; Python has it only without the mode."""
    import ctypes  # Few brokers need it.

    library = ctypes.CDLL(None, use_errno=True)
    try:
        call = library.fallocate
    except AttributeError:
        return lambda fd, mode, start, length: errno.ENOSYS
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return lambda fd, mode, start, length: ctypes.get_errno() if call(fd, mode, start, length) else 0
