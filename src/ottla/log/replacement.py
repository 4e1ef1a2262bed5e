"""Replacing segments by others, as compaction does, so that a crash leaves the old ones or the new ones.

The steps are Kafka's, and a directory that either of the two left behind is understood by the other:

1. The new segments are written as `.cleaned` files. They may end before the old ones did, so there may be gaps between
   segments from now on; `PartitionLog.expect_gaps` has noted up to where, since recovery takes any other gap for a
   segment that a crash took.
2. `commit` syncs them and renames them to `.swap`, the last one first: while any `.cleaned` file is left, the
   replacement is not complete and a restart throws it away. When none is left, it is decided.
3. `PartitionLog.replace_segments` renames the old segments to `.deleted` and the new ones to their plain names, the
   first one first. A restart that finds `.swap` files does the same.
4. `PartitionLog.delete_files` removes the `.deleted` files, after a sync of the directory.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log import names
from ottla.log.disk import Disk
from ottla.log.handles import OpenFiles
from ottla.log.scan import TornBatchError, walk


def commit(disk: Disk, directory: str, base_offsets: Iterable[int]) -> list[str]:
    """Decide a replacement whose `.cleaned` files are complete. Returns the `.log.swap` paths. Blocks; any thread."""
    ascending = sorted(base_offsets)
    for base_offset in ascending:
        for kind in names.SEGMENT_KINDS:
            path = names.segment_path(directory, base_offset, kind, names.CLEANED)
            if disk.exists(path):
                disk.open(path).sync()
    # The names of all the files must be there before the first is renamed: one that is missing looks complete.
    disk.sync_dir(directory)
    for base_offset in reversed(ascending):
        for kind in names.SEGMENT_KINDS:
            path = names.segment_path(directory, base_offset, kind, names.CLEANED)
            if disk.exists(path):
                disk.rename(path, names.segment_path(directory, base_offset, kind, names.SWAP))
        disk.sync_dir(directory)
    return [names.segment_path(directory, base_offset, names.LOG, names.SWAP) for base_offset in ascending]


def finish_interrupted(disk: Disk, directory: str, listing: list[str]) -> list[str]:
    """Bring a directory to rest: finish or drop replacements, remove what waits for removal. Returns its names then."""
    passing = [parsed for parsed in map(names.parse_segment_name, listing) if parsed is not None and parsed[2]]
    if not passing:
        return listing
    undecided_from = min((base_offset for base_offset, _, suffix in passing if suffix == names.CLEANED), default=None)
    if undecided_from is not None:
        # Before the .cleaned files go: a .swap file without them would look decided after a crash right here.
        for base_offset, kind, suffix in passing:
            if suffix == names.SWAP and base_offset >= undecided_from:
                disk.remove(names.segment_path(directory, base_offset, kind, suffix))
        disk.sync_dir(directory)
    for base_offset, kind, suffix in passing:
        if suffix != names.SWAP:
            disk.remove(names.segment_path(directory, base_offset, kind, suffix))
    _finish_swap(disk, directory)
    disk.sync_dir(directory)
    return disk.listdir(directory)


def _finish_swap(disk: Disk, directory: str) -> None:
    parsed = [name for name in map(names.parse_segment_name, disk.listdir(directory)) if name is not None]
    swaps = [
        (base_offset, kind)
        for base_offset, kind, suffix in parsed
        if suffix == names.SWAP and kind in names.SEGMENT_KINDS
    ]
    covered = [
        (base_offset, _next_offset(disk, names.segment_path(directory, base_offset, kind, names.SWAP), base_offset))
        for base_offset, kind in swaps
        if kind == names.LOG
    ]
    if covered:
        start, end = min(first for first, _ in covered), max(after for _, after in covered)
        for base_offset, kind, suffix in parsed:
            if not suffix and kind in names.SEGMENT_KINDS and start <= base_offset < end:
                disk.remove(names.segment_path(directory, base_offset, kind))
        disk.sync_dir(directory)
    for base_offset, kind in sorted(swaps, key=lambda swap: (swap[0], names.SEGMENT_KINDS.index(swap[1]))):
        source = names.segment_path(directory, base_offset, kind, names.SWAP)
        disk.rename(source, names.segment_path(directory, base_offset, kind))


def _next_offset(disk: Disk, path: str, base_offset: int) -> int:
    """The offset after the last batch of a file that is known to be complete."""
    file = OpenFiles(disk).handle(path).get()
    next_offset = base_offset
    try:
        for _, header in walk(file, 0, file.size(), next_offset=base_offset):
            next_offset = header.last_offset + 1
    except TornBatchError:
        # It was synced before it became a swap file. Recovery will look at it again, with its checksums.
        return next_offset
    return next_offset
