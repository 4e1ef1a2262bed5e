"""Compaction: a log that keeps the last record of each key. What is decided here, and what is asked of the worker.

Theory of operation. The sealed segments of a compacted log have a clean part, where each key occurs once, and after it
a dirty part. A round of compaction
  1. reads dirty records and enters each key with its latest offset into a map, until the map is full or the dirty part
     ends,
  2. rewrites all segments up to there, clean ones too, leaving out records whose key has a later offset in the map,
  3. puts the new segments into the places of the old ones, and remembers where the dirty part starts now.
The first two are a `CompactionJob` for the record worker, another process (`compaction_run`); the third is the log's.

What stays true, whatever happens:
- A record keeps its offset, its batch keeps its base and last offset, its codec, and its producer's numbers.
- The last record of each key stays. If it has no value (a tombstone) it stays until `delete.retention.ms` after the
  round that cleaned it first, so that every reader who has seen the key can learn that it is gone. That time, the
  delete horizon, is written into the batch: flag 6 of its attributes, and the horizon in place of the base timestamp.
- The batch with the last sequence of an active producer stays, without records if need be, so that sequences survive.
- Nothing at or beyond the last stable offset or in the active segment is touched, nor what is younger than
  `min.compaction.lag.ms`.
- A batch whose records are not what its header claims stays as it is, and is reported. A batch that does not match its
  checksum ends the job: that is a damaged disk, and rewriting would make the damage look sound.
- A record without a key has no place in a compacted log: producers are refused, and one that is found goes.

Crashes. The worker writes `.cleaned` files and syncs them; the log renames them to `.swap` when they are complete and
then to their own names. Recovery drops the former and finishes the latter. The checkpoint of the first dirty offset is
written last; a round that is done twice gives what it gave the first time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from ottla.log.transaction_index import AbortedTransaction
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.model.configs.resolve import TopicConfig

CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
"""The file in each log directory that says, per partition, where its dirty part starts."""
MAP_BYTES_MAX_DEFAULT: Final = 128 << 20
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class CompactionError(OttlaError):
    """A round of compaction came to nothing. The log is as it was."""


class SegmentSource(msgspec.Struct, frozen=True, array_like=True):
    """A sealed segment that may be read."""

    base_offset: int
    size: int
    offset_index_bytes: int = 0
    time_index_bytes: int = 0


class ProducerTail(msgspec.Struct, frozen=True, array_like=True):
    """The last that a log has of an active producer."""

    producer_id: int
    producer_epoch: int
    last_data_offset: int
    """-1 if its last batch is a transaction's marker."""


class CompactionJob(msgspec.Struct, frozen=True, kw_only=True):
    """One round, for one partition: everything the worker has to know, and it knows nothing else."""

    directory: str
    segments: list[SegmentSource]
    """All sealed segments below `first_uncleanable_offset`, oldest first."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: list[ProducerTail] = []
    aborted: list[AbortedTransaction] = []
    map_bytes_max: int = MAP_BYTES_MAX_DEFAULT
    io_bytes_per_second_max: float = 0.0
    """0 for no limit."""
    seed: int = 0
    """Of the key map's hash. Random, so that nobody can prepare keys that collide."""


class CleanedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Segments that one new segment stands for. Its files are complete and synced, with the suffix `.cleaned`."""

    sources: list[int]
    """Base offsets of the old segments."""
    base_offset: int
    """Of the new one, which is that of the first old one."""
    size: int
    is_changed: bool = True
    """False if all would stay as it is; then there are no new files, and nothing is to be done."""


class BatchFault(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was left as it is because its records are not what its header claims."""

    segment_base_offset: int
    position: int
    base_offset: int
    reason: str


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a round did."""

    first_dirty_offset: int
    """Where the dirty part starts when the groups are in place."""
    groups: list[CleanedGroup]
    keys: int
    map_bytes: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    records_without_key: int
    faults_count: int
    faults: list[BatchFault]
    """The first few of them."""


class CleanableSegment(Protocol):
    """A segment as compaction sees it. The timestamps may cost a read, and are asked only where a lag is configured."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def age_timestamp(self) -> int:
        """Of its youngest record, or of its file if records have no times."""

    @property
    def first_timestamp(self) -> int: ...


class Dirtiness(NamedTuple):
    """How much a round could do for a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that must not be touched."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long something dirty has been older than `max.compaction.lag.ms`; 0 if nothing is."""

    @property
    def ratio(self) -> float:
        """The dirty part of what could be cleaned; logs are cleaned in this order, the largest first."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Whether a round is worth its work, or is owed to `max.compaction.lag.ms`."""
        if self.dirty_bytes == 0:
            return False
        return self.overdue_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def measure_dirtiness(
    segments: Sequence[CleanableSegment],
    config: TopicConfig,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Dirtiness:
    """Look at all segments of a log, the active one last. `checkpoint` is the first dirty offset as last written."""
    first_dirty = first_dirty_offset(checkpoint, log_start_offset, log_end_offset)
    dirty_sealed = _sealed_from(segments, first_dirty)
    bound = min(last_stable_offset, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        too_young = now_ms - config.min_compaction_lag_ms
        young = (segment.base_offset for segment in dirty_sealed if segment.age_timestamp > too_young)
        bound = min(bound, next(young, bound))
    end = next(iter(_sealed_from(segments, max(bound, first_dirty))), segments[-1]).base_offset
    return Dirtiness(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=end,
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < min(first_dirty, end)),
        dirty_bytes=sum(segment.size for segment in dirty_sealed if segment.base_offset < end),
        overdue_ms=_overdue_ms(dirty_sealed, config.max_compaction_lag_ms, now_ms),
    )


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """The checkpoint, unless the log no longer reaches from before it to after it; then all of the log is dirty."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def ends_of(job: CompactionJob, sources: Sequence[SegmentSource]) -> list[int]:
    """For each of these neighbours the offset that all of its own lie below."""
    return [source.base_offset for source in sources[1:]] + [job.first_uncleanable_offset]


def group_segments(job: CompactionJob, end_offset: int) -> list[list[SegmentSource]]:
    """Neighbours that fit into one segment and its indexes together, so that segments do not shrink to nothing."""
    groups: list[list[SegmentSource]] = []
    sources = [source for source in job.segments if source.base_offset < end_offset]
    ends = ends_of(job, sources)
    for source, end in zip(sources, ends, strict=True):
        if groups and _fits(job, groups[-1], source, end - 1):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(job: CompactionJob, group: list[SegmentSource], source: SegmentSource, last_offset: int) -> bool:
    together = [*group, source]
    return (
        sum(member.size for member in together) <= job.segment_bytes
        and sum(member.offset_index_bytes for member in together) <= job.segment_index_bytes
        and sum(member.time_index_bytes for member in together) <= job.segment_index_bytes
        and (source.size == 0 or last_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX)
    )


def _sealed_from(segments: Sequence[CleanableSegment], offset: int) -> Sequence[CleanableSegment]:
    """The sealed ones that hold `offset` or lie after it. Each segment ends where the next one starts."""
    if offset >= segments[-1].base_offset:
        return ()
    first = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    return segments[max(first, 0) : -1]


def _overdue_ms(dirty_sealed: Sequence[CleanableSegment], max_compaction_lag_ms: int, now_ms: int) -> int:
    latest_allowed = now_ms - max_compaction_lag_ms
    if latest_allowed <= 0:
        return 0
    oldest = min((time for segment in dirty_sealed if (time := segment.first_timestamp) > 0), default=latest_allowed)
    return max(0, latest_allowed - oldest)
