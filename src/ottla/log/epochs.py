"""Which leader epoch began at which offset: how replicas find out where their logs part.

Entries rise in epoch and in offset. They are kept as one tuple that is replaced as a whole, so a thread may save them
while the loop adds to them. A new epoch is in memory at once and in the file when `save` has run, which is before the
recovery point passes its first batch; until then recovery finds it in the batches themselves.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ottla.log.checkpoints import CorruptCheckpointError, encode_lines, read_lines
from ottla.log.disk import Disk
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET


class EpochStart(NamedTuple):
    """The first offset that the leader of an epoch wrote, or could have written."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one log."""

    __slots__ = ("_disk", "_path", "_saved", "entries", "latest")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.entries: tuple[EpochStart, ...] = ()
        self.latest = NO_LEADER_EPOCH
        """The epoch of the last entry; read on every append."""
        self._saved: tuple[EpochStart, ...] = ()

    def load(self) -> None:
        """Read the file; an unreadable one counts as none, since the batches know their epochs too."""
        try:
            entries = tuple(EpochStart(int(epoch), int(offset)) for epoch, offset in read_lines(self._disk, self._path))
        except (CorruptCheckpointError, ValueError):
            entries = ()
        rising = all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
        self._set(entries if rising else ())
        self._saved = self.entries

    @property
    def is_saved(self) -> bool:
        return self._saved == self.entries

    def save(self) -> None:
        """Write the file if it is behind. Blocks; any thread, but one at a time."""
        entries = self.entries
        if self._saved != entries:
            self._disk.write_atomically(self._path, encode_lines(f"{e.epoch} {e.start_offset}" for e in entries))
            self._saved = entries

    def assign(self, epoch: int, start_offset: int) -> None:
        """A leader of `epoch` begins at `start_offset`. Entries that contradict it go."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.epoch == epoch and last.start_offset <= start_offset:
            return
        kept = [e for e in self.entries if e.epoch < epoch and e.start_offset < start_offset]
        self._set((*kept, EpochStart(epoch, start_offset)))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not beyond `epoch`, and the offset where it ends; (-1, -1) if that is not known."""
        if epoch == NO_LEADER_EPOCH:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        later = next((e for e in self.entries if e.epoch > epoch), None)
        if later is None:
            return NO_LEADER_EPOCH, NO_OFFSET
        floor = max((e.epoch for e in self.entries if e.epoch <= epoch), default=epoch)
        return floor, later.start_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch of the leader that wrote `offset`; -1 if that is not known."""
        return max((e.epoch for e in self.entries if e.start_offset <= offset), default=NO_LEADER_EPOCH)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at `end_offset` or later."""
        if self.entries and self.entries[-1].start_offset >= end_offset:
            self._set(tuple(e for e in self.entries if e.start_offset < end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end before `start_offset`; the one that it lies in begins there now."""
        before = [e for e in self.entries if e.start_offset <= start_offset]
        if before and before[-1].start_offset < start_offset:
            after = self.entries[len(before) :]
            self._set((EpochStart(before[-1].epoch, start_offset), *after))
        elif len(before) > 1:
            self._set(self.entries[len(before) - 1 :])

    def clear(self) -> None:
        self._set(())

    def _set(self, entries: tuple[EpochStart, ...]) -> None:
        self.entries = entries
        self.latest = entries[-1].epoch if entries else NO_LEADER_EPOCH
