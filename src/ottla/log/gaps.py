"""Gaps between the segments of a log that are no loss.

Compaction leaves gaps, in its own log and in those of followers. After a crash a gap between two segments looks like a
segment, or the end of one, that the crash has taken; what comes after must go then, or a replica would never ask for it
again. Recovery knows a gap for what it is from two places:
- `compaction-gaps-checkpoint`: everything below the offset in it was on the medium, with its name, before compaction
  left a gap there. So no crash has taken any of it.
- A file without content whose name says where the log ended and where it went on, for a gap that no index spans. It is
  as safe as the names of the segments around it, and like them it waits for the next sync.

What an editor must keep true: the offset in the checkpoint is never beyond what is synced, and it goes down when the
log is cut, before anything is appended. What is written then is as easily lost as anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ottla.log import names
from ottla.log.checkpoints import CorruptCheckpointError, encode_lines, read_lines
from ottla.log.disk import Disk
from ottla.log.failures import is_out_of_space
from ottla.log.segment import Segment


def is_known(disk: Disk, directory: str, end_offset: int, next_offset: int) -> bool:
    """Whether nothing is missing between the end of one segment and the beginning of the next."""
    return next_offset <= _until(disk, directory) or disk.exists(_path(directory, end_offset, next_offset))


def expect_until(disk: Disk, directory: str, offset: int) -> None:
    """From now on there may be gaps below `offset`, and all that is there is synced. Blocks."""
    if offset > _until(disk, directory):
        _store(disk, directory, offset)


def expect_none_from(disk: Disk, directory: str, offset: int) -> None:
    """The log ends at `offset`: what comes there is new. Blocks.

    Where there is no room to say so nothing is known of any gap from now on: that costs a crash what others have.
    """
    if offset < _until(disk, directory):
        try:
            _store(disk, directory, offset)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            disk.remove(f"{directory}/{names.GAPS_UNTIL}")
            disk.sync_dir(directory)


def mark(disk: Disk, directory: str, end_offset: int, next_offset: int) -> None:
    """A log that ends at `end_offset` goes on at `next_offset`, and nothing was ever in between. Not synced."""
    disk.open(_path(directory, end_offset, next_offset), create=True)


def unmark(disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
    """Forget the gaps that no segment of these lies behind."""
    bases = {segment.base_offset for segment in segments}
    for name in disk.listdir(directory):
        gap = names.parse_gap_name(name)
        if gap is not None and gap[1] not in bases:
            disk.remove(f"{directory}/{name}")


def _path(directory: str, end_offset: int, next_offset: int) -> str:
    return f"{directory}/{names.gap_name(end_offset, next_offset)}"


def _until(disk: Disk, directory: str) -> int:
    try:
        return max((int(offset) for (offset,) in read_lines(disk, f"{directory}/{names.GAPS_UNTIL}")), default=0)
    except (CorruptCheckpointError, ValueError):
        return sys.maxsize


def _store(disk: Disk, directory: str, offset: int) -> None:
    disk.write_atomically(f"{directory}/{names.GAPS_UNTIL}", encode_lines([str(offset)]))
