"""One round of compaction for one log: the worker writes, this puts in place.

Each group of segments is put in place as soon as the worker has finished it, while the worker writes the next one, and
what it replaces is discarded then, whatever becomes of the rest: a round needs room on disk for what it writes within
`file.delete.delay.ms` and not for a second log. A group whose old segments are no longer there
(retention took them, the partition was deleted, the log was cut) ends the round; what was put in place before stays.

The caller sees to it that a log has one round at a time.

What an editor must keep true: a partition may be deleted at any moment, and one with its name be created, whose files
have the same paths. After each wait `_old_segments` is asked again before a file is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.log import names
from ottla.log.compaction import CleanedGroup, CompactionError, CompactionJob, CompactionResult
from ottla.log.compaction_plan import sources_in_place
from ottla.log.replacement import commit

if TYPE_CHECKING:
    from ottla.log.disk import Disk
    from ottla.log.partition_log import PartitionLog
    from ottla.log.segment import Segment
    from ottla.runtime.world import Offload


class CompactionWork(Protocol):
    """The record worker, as far as compaction needs it."""

    async def compact(
        self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
    ) -> CompactionResult: ...


async def compact_log(
    log: PartitionLog,
    job: CompactionJob,
    work: CompactionWork,
    *,
    disk: Disk,
    offload: Offload,
    sync: Callable[[PartitionLog, int], Awaitable[None]],
    discard: Callable[[Sequence[Segment]], object],
) -> CompactionResult:
    """Carry out a job for a log and put what comes of it in place; `discard` gets old segments as they fall out.

    `sync` is that of `Flushes`. When this returns, the caller advances the cleaner's checkpoint to
    `first_dirty_offset`. It raises what `RecordWorker.compact` and `sync` raise, StorageError, or CompactionError if
    the log changed meanwhile.
    """
    truncations = log.truncations
    # What takes the place of a value, or says that it was never committed, must be safe before the value goes.
    await sync(log, log.log_end_offset)
    await offload.run(log.expect_gaps, job.first_uncleanable_offset, truncations)
    if log.is_closed:
        raise CompactionError(f"{log.tp} was deleted before it was compacted")
    groups: asyncio.Queue[CleanedGroup | None] = asyncio.Queue()
    working = asyncio.ensure_future(work.compact(job, groups.put_nowait))
    working.add_done_callback(lambda _: groups.put_nowait(None))
    try:
        while (group := await groups.get()) is not None:
            if group.is_changed:
                discard(await _put_in_place(log, job, group, disk, offload, truncations))
        result = await working
        if log.truncations != truncations:
            raise CompactionError(f"{log.tp} was cut while it was compacted")
        return result
    finally:
        working.cancel()
        # Also takes note of how the work ended, if putting in place ended before it.
        await asyncio.gather(working, return_exceptions=True)


async def _put_in_place(
    log: PartitionLog, job: CompactionJob, group: CleanedGroup, disk: Disk, offload: Offload, truncations: int
) -> list[Segment]:
    changed = f"{log.tp}: segments {group.sources} changed while they were compacted"
    if _old_segments(log, job, group, truncations) is None:
        raise CompactionError(changed)
    swaps = await offload.run(commit, disk, job.directory, [group.base_offset])
    # Asked again: the commit ran beside the loop.
    old = _old_segments(log, job, group, truncations)
    replaced = log.replace_segments(old, swaps) if old is not None else []
    if not replaced:
        await offload.run(_remove_swap, disk, job.directory, group.base_offset)
        raise CompactionError(changed)
    return replaced


def _old_segments(log: PartitionLog, job: CompactionJob, group: CleanedGroup, truncations: int) -> list[Segment] | None:
    """What a group stands for; None if the log was deleted, cut, or has lost some of it."""
    if log.is_closed or log.truncations != truncations:
        return None
    return sources_in_place(log.segments, job, group)


def _remove_swap(disk: Disk, directory: str, base_offset: int) -> None:
    for kind in names.SEGMENT_KINDS:
        disk.remove(names.segment_path(directory, base_offset, kind, names.SWAP))
