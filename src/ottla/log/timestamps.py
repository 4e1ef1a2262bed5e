"""Offsets by time. Any thread: works on a snapshot of a log's segments.

A segment's time index gives a place before the batch that is wanted, a walk over headers finds it, and only that
batch is looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.log.segment import Located, Segment
from ottla.wire.records import find_timestamp, iterate, max_timestamp_record


class TimestampedOffset(NamedTuple):
    """A record's place and time, and the epoch of the leader that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(segments: Sequence[Segment], timestamp: int, start_offset: int) -> TimestampedOffset | None:
    """The first record from `start_offset` on that is not older than `timestamp`."""
    for index, segment in enumerate(segments):
        ends_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start_offset
        if not ends_before and segment.max_timestamp >= timestamp:
            found = _first_in(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def youngest(segments: Sequence[Segment]) -> TimestampedOffset | None:
    """The first of the records with the largest timestamp."""
    segment = max(segments, key=lambda segment: segment.max_timestamp)
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    located = segment.find(segment.offset_before(timestamp - 1), lambda header: header.max_timestamp >= timestamp)
    if located is None:
        return None
    found = max_timestamp_record(segment.batch_at(located))
    return None if found is None else TimestampedOffset(*found, located.header.partition_leader_epoch)


def _first_in(segment: Segment, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    offset = max(segment.offset_before(timestamp), start_offset)
    while True:
        located = _next_candidate(segment, offset, timestamp, start_offset)
        if located is None:
            return None
        found = _first_record(segment.batch_at(located), timestamp, start_offset)
        if found is not None:
            return TimestampedOffset(*found, located.header.partition_leader_epoch)
        start_offset = offset = located.header.last_offset + 1


def _next_candidate(segment: Segment, offset: int, timestamp: int, start_offset: int) -> Located | None:
    return segment.find(offset, lambda header: header.max_timestamp >= timestamp and header.last_offset >= start_offset)


def _first_record(batch: bytes, timestamp: int, start_offset: int) -> tuple[int, int] | None:
    found = find_timestamp(batch, timestamp)
    if found is None or found[0] >= start_offset:
        return found
    # The log begins inside of this batch.
    later = (r for r in iterate(batch) if r.offset >= start_offset and r.timestamp >= timestamp)
    return next(((record.offset, record.timestamp) for record in later), None)
