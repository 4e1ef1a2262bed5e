"""From a log to a job for the record worker, and from the job's result back to the log's segments. On the loop."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.log import names
from ottla.log.compaction import (
    MAP_BYTES_MAX_DEFAULT,
    CleanedGroup,
    CompactionJob,
    Dirtiness,
    ProducerTail,
    SegmentSource,
    measure_dirtiness,
)
from ottla.log.disk import Disk
from ottla.log.failures import storage_errors
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Producer
from ottla.log.segment import Segment


def dirtiness_of(log: PartitionLog, *, checkpoint: int | None, last_stable_offset: int, now_ms: int) -> Dirtiness:
    """How much a round could do for a log now; `checkpoint` is what `CleanerCheckpoint` has for it."""
    with storage_errors(log.directory):
        return measure_dirtiness(
            log.segments,
            log.config,
            checkpoint=checkpoint,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_stable_offset=last_stable_offset,
            now_ms=now_ms,
        )


def plan_round(
    log: PartitionLog,
    disk: Disk,
    dirtiness: Dirtiness,
    *,
    now_ms: int,
    seed: int,
    map_bytes_max: int = MAP_BYTES_MAX_DEFAULT,
    io_bytes_per_second_max: float = 0.0,
) -> CompactionJob:
    """The round that `dirtiness` speaks of. `seed` is random, see `CompactionJob`."""
    end = dirtiness.first_uncleanable_offset
    return CompactionJob(
        directory=log.directory,
        segments=[_source(segment, disk) for segment in log.segments[:-1] if segment.base_offset < end],
        first_dirty_offset=dirtiness.first_dirty_offset,
        first_uncleanable_offset=end,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        producers=[_tail(producer) for producer in log.producers.active_producers()],
        aborted=log.aborted_transactions(log.segments[0].base_offset, end),
        map_bytes_max=map_bytes_max,
        io_bytes_per_second_max=io_bytes_per_second_max,
        seed=seed,
    )


def sources_in_place(segments: Sequence[Segment], job: CompactionJob, group: CleanedGroup) -> list[Segment] | None:
    """The segments that a cleaned group stands for; None if one of them is gone, or is not what the worker has read."""
    sizes = {source.base_offset: source.size for source in job.segments}
    found = [
        segment
        for segment in segments[:-1]
        if segment.base_offset in group.sources and segment.size == sizes[segment.base_offset]
    ]
    return found if len(found) == len(group.sources) else None


def _tail(producer: Producer) -> ProducerTail:
    last_data_offset = producer.batches[-1].last_offset if producer.batches else -1
    return ProducerTail(producer.producer_id, producer.epoch, last_data_offset)


def _source(segment: Segment, disk: Disk) -> SegmentSource:
    def size(kind: str) -> int:
        path = segment.path_of(kind)
        return disk.size(path) if disk.exists(path) else 0

    return SegmentSource(segment.base_offset, segment.size, size(names.OFFSET_INDEX), size(names.TIME_INDEX))
