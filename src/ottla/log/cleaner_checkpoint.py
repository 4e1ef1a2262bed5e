"""Where the dirty part of each compacted log starts: the file `cleaner-offset-checkpoint` of a log directory.

Losing it loses no record: a log without an entry is dirty from its start. So a file that cannot be read counts as
empty, and an entry may be written late, but never before the cleaned segments that it speaks of are in place.

One that is too high is worse: of what it calls clean by mistake the values of a key stay, its tombstone goes after its
time, and a deleted key is back. So an entry goes down, or goes, on disk before the log is cut or its name is free.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from ottla.log.checkpoints import CorruptCheckpointError, read_offsets, write_offsets
from ottla.log.disk import Disk
from ottla.model.ids import TopicPartition

FILE_NAME: Final = "cleaner-offset-checkpoint"


class CleanerCheckpoint:
    """First dirty offsets by partition, in memory and, after `write`, on disk."""

    __slots__ = ("_disk", "_offsets", "_stored", "path")

    def __init__(self, disk: Disk, log_directory: str) -> None:
        self.path = f"{log_directory}/{FILE_NAME}"
        self._disk = disk
        try:
            self._offsets = read_offsets(disk, self.path)
        except CorruptCheckpointError:
            self._offsets = {}
        self._stored = dict(self._offsets)

    def get(self, partition: TopicPartition) -> int | None:
        """The first dirty offset, None if it is not known."""
        return self._offsets.get(partition)

    def advance(self, partition: TopicPartition, offset: int) -> None:
        """A round of compaction is in place up to `offset`."""
        self._offsets[partition] = offset

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """The log was cut at `offset`; what comes after that is new, and dirty."""
        if self._offsets.get(partition, -1) > offset:
            self._offsets[partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        """What comes under this name is another log."""
        self._offsets.pop(partition, None)

    def retain(self, partitions: Container[TopicPartition]) -> None:
        """Forget partitions that are no longer here."""
        self._offsets = {partition: offset for partition, offset in self._offsets.items() if partition in partitions}

    @property
    def is_stored(self) -> bool:
        """Whether the file says what is known."""
        return self._stored == self._offsets

    def write(self) -> None:
        """Replace the file. Blocks."""
        offsets = dict(self._offsets)
        write_offsets(self._disk, self.path, offsets)
        self._stored = offsets
