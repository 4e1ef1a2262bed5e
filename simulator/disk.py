"""A disk that keeps what it must and forgets what it may.

Theory of operation. The `Medium` is a tree of directories and files. Each file has its bytes as processes see them,
the bytes that a sync has put on the medium, and the writes in between; each directory the same of its names. A
process reaches it through a `Mount`, which dies with it. After a process was killed everything it wrote is still
there: it is the system that remembers. After the power went, each directory keeps its names up to some change since
its sync, and each file each sector as it was at some moment since its sync; sectors that were never written read as
zeros.

A mount can be told to kill its process in the middle of any operation, to fail with EIO, or to be full.

What an editor must keep true: a crash may keep nothing that a real disk could not have, and must be able to take
whatever a real one may take. Order of chance must not depend on addresses of objects.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.log.disk import Bytes

if TYPE_CHECKING:
    from simulator.mount import Mount

SECTOR_BYTES: Final = 512
PENDING_WRITES_MAX: Final = 256
"""Beyond this the system writes the older half back by itself."""
CAPACITY_BYTES: Final = 1 << 30

Write: TypeAlias = tuple[int, bytes | None]
"""Position and bytes; a truncation is its size and no bytes at all."""


class ProcessKilled(BaseException):
    """The process ended in the middle of an operation. Nothing in it may catch this."""


class Inode:
    """A file."""

    __slots__ = ("data", "durable", "modified_us", "pending")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.pending: list[Write] = []
        self.modified_us = 0

    def write(self, position: int, data: bytes) -> None:
        _write(self.data, position, data)
        self.pending.append((position, data))
        if len(self.pending) > PENDING_WRITES_MAX:
            self._write_back(PENDING_WRITES_MAX // 2)

    def truncate(self, size: int) -> None:
        _resize(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        self._write_back(len(self.pending))

    def _write_back(self, count: int) -> None:
        for position, data in self.pending[:count]:
            if data is None:
                _resize(self.durable, position)
            else:
                _write(self.durable, position, data)
        del self.pending[:count]

    def after_crash(self, rng: random.Random) -> Inode:
        """The file when the power comes back."""
        if not self.pending:
            return Inode(bytes(self.durable))
        mode = rng.random()
        if mode < 0.2:
            return Inode(bytes(self.durable))
        if mode < 0.4:
            return Inode(bytes(self.data))
        kept = Inode(bytes(self.durable))
        if mode < 0.6:
            # As a journal that keeps order does it: some writes whole, the next one torn.
            whole = rng.randrange(len(self.pending))
            kept.pending = self.pending[: whole + 1]
            position, data = kept.pending[-1]
            if data is not None:
                kept.pending[-1] = (position, data[: _torn(position, len(data), rng)])
            kept.sync()
        else:
            kept.durable = self._sectors(rng)
        kept.data = bytearray(kept.durable)
        return kept

    def _sectors(self, rng: random.Random) -> bytearray:
        """Each sector as after some of the writes to it, the size as after some of all."""
        sizes = [len(self.durable)]
        touched: dict[int, list[Write]] = {}
        end = max(len(self.data), len(self.durable))
        for position, data in self.pending:
            size = position if data is None else max(sizes[-1], position + len(data))
            sizes.append(size)
            last = end if data is None else position + len(data)
            for sector in range(position // SECTOR_BYTES, -(-last // SECTOR_BYTES)):
                touched.setdefault(sector, []).append((position, data))
        image = bytearray(self.durable)
        _resize(image, rng.choice(sizes))
        for sector, writes in touched.items():
            for position, data in writes[: rng.randint(0, len(writes))]:
                _write_sector(image, sector * SECTOR_BYTES, position, data)
        return image


def _torn(position: int, size: int, rng: random.Random) -> int:
    """How much of a write arrived: up to the edge of a sector."""
    edge = -(-(position + rng.randint(0, size)) // SECTOR_BYTES) * SECTOR_BYTES
    return min(max(edge - position, 0), size)


def _write_sector(image: bytearray, at: int, position: int, data: bytes | None) -> None:
    end = min(at + SECTOR_BYTES, len(image))
    start = max(at, position)
    if start >= end:
        return
    if data is None:
        image[start:end] = bytes(end - start)
    else:
        part = data[start - position : end - position]
        image[start : start + len(part)] = part


def _write(image: bytearray, position: int, data: bytes) -> None:
    if position > len(image):
        _resize(image, position)
    image[position : position + len(data)] = data


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


class Folder:
    """A directory: its names as processes see them, as the medium has them, and the changes in between."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.durable: dict[str, Entry] = {}
        self.changes: list[tuple[tuple[str, Entry | None], ...]] = []
        """Each is atomic: a rename within a directory takes away one name and gives another."""

    def change(self, *names: tuple[str, Entry | None]) -> None:
        _apply(self.entries, names)
        self.changes.append(names)

    def sync(self) -> None:
        for names in self.changes:
            _apply(self.durable, names)
        self.changes.clear()

    def after_crash(self, rng: random.Random, *, in_order: bool) -> Folder:
        kept = dict(self.durable)
        if in_order:
            changes = self.changes[: rng.randint(0, len(self.changes))]
        else:
            changes = [names for names in self.changes if rng.random() < 0.5]
        for names in changes:
            _apply(kept, names)
        after = Folder()
        for name in sorted(kept):
            entry = kept[name]
            if isinstance(entry, Folder):
                after.entries[name] = entry.after_crash(rng, in_order=in_order)
            else:
                after.entries[name] = entry.after_crash(rng)
        after.durable = dict(after.entries)
        return after


Entry: TypeAlias = Inode | Folder


def _apply(entries: dict[str, Entry], names: tuple[tuple[str, Entry | None], ...]) -> None:
    for name, entry in names:
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


class Medium:
    """What is left when no process is: survives kills, and crashes as far as a disk does."""

    __slots__ = ("capacity_bytes", "now_us", "root")

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.root = Folder()
        self.now_us = now_us
        self.capacity_bytes = CAPACITY_BYTES

    def lose_power(self, rng: random.Random) -> None:
        self.root = self.root.after_crash(rng, in_order=rng.random() < 0.7)

    def drop_cache(self) -> None:
        """Only what was synced is left of each file; names stay."""
        for _, inode in self.files():
            inode.pending.clear()
            inode.data = bytearray(inode.durable)

    def rot(self, number: int, suffixes: tuple[str, ...]) -> str | None:
        """Flip a bit of a file that ends so; returns which file, None if there is none."""
        files = [(path, inode) for path, inode in self.files() if path.endswith(suffixes) and inode.durable]
        if not files:
            return None
        path, inode = files[number % len(files)]
        position = (number >> 8) % len(inode.durable)
        for image in (inode.durable, inode.data):
            if position < len(image):
                image[position] ^= 1 << number % 8
        return path

    def wipe(self) -> None:
        """A new, empty disk."""
        self.root = Folder()

    def used_bytes(self) -> int:
        return sum(len(inode.data) for _, inode in self.files())

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Every file with its path, sorted."""
        yield from _walk("", self.root)

    def durable_bytes(self, path: str) -> bytes | None:
        """A file as it is on the medium, if its name is there too."""
        entry: Entry = self.root
        for name in path.split("/"):
            if name:
                found = entry.durable.get(name) if isinstance(entry, Folder) else None
                if found is None:
                    return None
                entry = found
        return bytes(entry.durable) if isinstance(entry, Inode) else None

    def find(self, path: str) -> Entry | None:
        entry: Entry = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(entry, Folder):
                    return None
                found = entry.entries.get(name)
                if found is None:
                    return None
                entry = found
        return entry


def _walk(path: str, folder: Folder) -> Iterator[tuple[str, Inode]]:
    for name in sorted(folder.entries):
        entry = folder.entries[name]
        if isinstance(entry, Folder):
            yield from _walk(f"{path}/{name}", entry)
        else:
            yield f"{path}/{name}", entry


class DiskFaults:
    """What a mount does besides what it is asked for."""

    __slots__ = (
        "fail_reads",
        "fail_syncs",
        "fail_writes",
        "failed",
        "full",
        "kill_after",
        "may_fail_sync",
        "may_kill",
        "on_failed_sync",
        "on_kill",
        "operations",
        "sync_failed",
    )

    def __init__(self) -> None:
        self.operations = 0
        """Changing ones, counted."""
        self.kill_after = -1
        self.on_kill: Callable[[], None] = lambda: None
        self.may_kill: Callable[[], bool] = lambda: True
        self.fail_reads = False
        self.fail_writes = False
        self.fail_syncs = False
        """From the next sync on that may fail."""
        self.may_fail_sync: Callable[[], bool] = lambda: True
        self.on_failed_sync: Callable[[], None] = lambda: None
        self.sync_failed = False
        self.full = False
        self.failed = 0
        """How often an operation did not do what it was asked for, but said so."""

    def disarm(self) -> None:
        """What was to happen at one of the next operations comes to nothing."""
        self.kill_after = -1
        self.fail_syncs = self.fail_syncs and self.sync_failed

    def sync_fails(self) -> bool:
        """Whether a sync that is asked for now fails."""
        if not self.fail_syncs or not (self.sync_failed or self.may_fail_sync()):
            return False
        self.sync_failed = True
        self.on_failed_sync()
        return True

    def count(self) -> bool:
        """Whether the process ends at this operation."""
        self.operations += 1
        if self.kill_after < 0 or self.operations < self.kill_after:
            return False
        self.kill_after = -1
        return self.may_kill()


class SimulatedFile:
    """An open file of a mount."""

    __slots__ = ("_inode", "_mount", "path")

    def __init__(self, mount: Mount, inode: Inode, path: str) -> None:
        self._mount = mount
        self._inode = inode
        self.path = path

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor")

    def pread(self, size: int, position: int) -> bytes:
        mount = self._mount
        if not mount.alive or mount.faults.fail_reads:
            mount.fail(self.path)
        return bytes(self._inode.data[position : position + size])

    def pwrite(self, data: Bytes, position: int) -> None:
        self._mount.writing(self.path, self._inode, bytes(data), position)

    def pwritev(self, pieces: Sequence[Bytes], position: int) -> None:
        self.pwrite(b"".join(pieces), position)

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._mount.changing(self.path)
        self._inode.truncate(size)

    def reserve(self, start: int, end: int) -> None:
        self._mount.changing(self.path)

    def sync(self) -> None:
        mount = self._mount
        mount.changing(self.path)
        if mount.faults.sync_fails():
            # The pages count as clean afterwards, and the next sync says nothing.
            self._inode.pending.clear()
            mount.fail(self.path)
        self._inode.sync()

    def close(self) -> None:
        pass
