"""The producer snapshots of one log: one at the beginning of each segment, and one at the end when the log was closed.

With a snapshot, the state of the producers is known without reading what lies before it. Each file is written in one go
and not synced here; a torn one fails its checksum, is removed, and the next older one serves with more to replay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable

from ottla.log import names, producer_snapshot
from ottla.log.disk import Disk
from ottla.log.producer_snapshot import CorruptSnapshotError, SnapshotEntry


class SnapshotFiles:
    """Which snapshots there are, and their files."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, directory: str, disk: Disk, offsets: Iterable[int] = ()) -> None:
        self._directory = directory
        self._disk = disk
        self.offsets: tuple[int, ...] = tuple(sorted(offsets))

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def path(self, offset: int) -> str:
        return names.segment_path(self._directory, offset, names.PRODUCER_SNAPSHOT)

    def write(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Write the snapshot for `offset`, replacing what is there. Not synced."""
        data = producer_snapshot.encode(entries)
        file = self._disk.open(self.path(offset), create=True)
        file.pwrite(data, 0)
        if file.size() > len(data):
            file.truncate(len(data))
        self.offsets = (*(o for o in self.offsets if o < offset), offset, *(o for o in self.offsets if o > offset))

    def sync(self, offset: int) -> None:
        """Bring the snapshot for `offset` to the medium, if there is one. Blocks; any thread."""
        if offset in self.offsets:
            try:
                self._disk.open(self.path(offset)).sync()
            except FileNotFoundError:
                return

    def read_latest(self, end_offset: int) -> tuple[int, list[SnapshotEntry]] | None:
        """The last snapshot at or before `end_offset` that can be believed; those that cannot are removed."""
        while True:
            found = bisect_right(self.offsets, end_offset)
            if not found:
                return None
            offset = self.offsets[found - 1]
            try:
                return offset, producer_snapshot.decode(self._disk.read(self.path(offset)))
            except (CorruptSnapshotError, FileNotFoundError):
                self.remove([offset])

    def remove(self, offsets: Collection[int]) -> None:
        gone = [offset for offset in offsets if offset in self.offsets]
        self.offsets = tuple(offset for offset in self.offsets if offset not in gone)
        for offset in gone:
            self._disk.remove(self.path(offset))

    def remove_outside(self, start_offset: int, end_offset: int) -> None:
        """Remove those that say nothing about what is in the log."""
        self.remove([offset for offset in self.offsets if not start_offset < offset <= end_offset])

    def remove_strays(self, base_offsets: Collection[int]) -> None:
        """Remove those that belong to no segment, but for one at the end of the log."""
        last_base = max(base_offsets, default=0)
        strays = [offset for offset in self.offsets if offset not in base_offsets]
        if strays and strays[-1] == self.latest and strays[-1] >= last_base:
            strays.pop()
        self.remove(strays)
