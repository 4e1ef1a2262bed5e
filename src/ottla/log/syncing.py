"""Bringing a log to the medium, away from the loop.

Any number of syncs may run at the same time in threads, while the loop appends and rolls. Each one notes what it has
synced only after it is done, and only as far as it looked when it began: whoever comes meanwhile syncs again rather
than believe in a sync that is still under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.log import names
from ottla.log.disk import Disk
from ottla.log.segment import Segment
from ottla.log.snapshot_files import SnapshotFiles


class DirectoryNames:
    """Whether the names in a log's directory are on the medium: without its name, a synced file is lost."""

    __slots__ = ("_disk", "_is_new", "_synced", "_version", "directory")

    def __init__(self, disk: Disk, directory: str, *, is_new: bool, synced: bool) -> None:
        self.directory = directory
        self._disk = disk
        self._is_new = is_new
        self._version = 1
        self._synced = 1 if synced else 0

    @property
    def are_synced(self) -> bool:
        return self._synced == self._version

    def changed(self) -> None:
        """A file was made, renamed or removed."""
        self._version += 1

    def sync(self) -> None:
        """Blocks; any thread."""
        version = self._version
        if self._synced == version:
            return
        if self._is_new:
            metadata = f"{self.directory}/{names.PARTITION_METADATA}"
            if self._disk.exists(metadata):
                self._disk.open(metadata).sync()
            self._disk.sync_dir(self.directory.rpartition("/")[0])
        self._disk.sync_dir(self.directory)
        self._is_new = False
        self._synced = max(self._synced, version)


def sync_segments(
    segments: Sequence[Segment], offset: int, snapshots: SnapshotFiles, is_current: Callable[[Segment], bool]
) -> None:
    """Sync every segment that begins below `offset`: its batches, and what else a sealed one has.

    `segments` is what the log had when this began, and its last one may be sealed by now: it is synced as far as its
    batches go, and the next sync finds the rest.
    """
    for index, segment in enumerate(segments):
        if segment.synced or segment.base_offset >= offset:
            continue
        try:
            if index + 1 < len(segments):
                segment.sync()
                snapshots.sync(segments[index + 1].base_offset)
            else:
                segment.sync_batches()
        except FileNotFoundError:
            # Dropped or replaced meanwhile: nobody needs it on the medium any more.
            if is_current(segment):
                raise
