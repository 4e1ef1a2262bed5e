"""Offsets by time. Any thread: works on a snapshot of a log's segments.

A segment's time index gives a place before the batch that is wanted, a walk over headers finds it, and only that
batch is looked into.

What an editor must keep true: what a producer wrote decides how long a lookup takes, and a few kilobytes may stand for
millions of records. So one lookup looks into so much and no more. For a batch that it does not look into, or that is
no batch inside, the answer is the batch's first offset and the time in its header: a reader begins too early with it,
never too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.segment import Located, Segment
from ottla.model.errors import ApiError
from ottla.wire.records import find_timestamp, max_timestamp_record

if TYPE_CHECKING:
    from ottla.wire.batch import BatchHeader

RECORDS_MAX: Final = 200_000
"""That one lookup looks at, one after the other: an eighth of a second."""
BATCHES_MAX: Final = 8
"""That one lookup looks into. The first of them has what is wanted, unless its header lies or the log begins in it."""
BODY_BYTES_MAX: Final = 64 << 20
"""What a batch may decompress to."""


class TimestampedOffset(NamedTuple):
    """A record's place and time, and the epoch of the leader that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


class Patience:
    """How much of a log one lookup may still look into."""

    __slots__ = ("_batches", "_records")

    def __init__(self) -> None:
        self._batches = BATCHES_MAX
        self._records = RECORDS_MAX

    def suffices_for(self, header: BatchHeader) -> bool:
        """Whether this batch may be looked into as well."""
        self._batches -= 1
        self._records -= max(header.record_count, 0)
        return self._batches >= 0 and self._records >= 0


def first_at_or_after(segments: Sequence[Segment], timestamp: int, start_offset: int) -> TimestampedOffset | None:
    """The first record from `start_offset` on that is not older than `timestamp`."""
    patience = Patience()
    for index, segment in enumerate(segments):
        ends_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start_offset
        if not ends_before and segment.max_timestamp >= timestamp:
            found = _first_in(segment, timestamp, start_offset, patience)
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
    found = _youngest_record(segment, located)
    return None if found is None else TimestampedOffset(*found, located.header.partition_leader_epoch)


def _youngest_record(segment: Segment, located: Located) -> tuple[int, int] | None:
    header, batch = located.header, segment.batch_at(located)
    if Patience().suffices_for(header):
        try:
            return max_timestamp_record(batch, size_max=BODY_BYTES_MAX)
        except ApiError:
            pass
    return header.base_offset, header.max_timestamp


def _first_in(segment: Segment, timestamp: int, start_offset: int, patience: Patience) -> TimestampedOffset | None:
    offset = max(segment.offset_before(timestamp), start_offset)
    while True:
        located = _next_candidate(segment, offset, timestamp, start_offset)
        if located is None:
            return None
        found = _first_record(segment, located, timestamp, start_offset, patience)
        if found is not None:
            return TimestampedOffset(*found, located.header.partition_leader_epoch)
        start_offset = offset = located.header.last_offset + 1


def _next_candidate(segment: Segment, offset: int, timestamp: int, start_offset: int) -> Located | None:
    return segment.find(offset, lambda header: header.max_timestamp >= timestamp and header.last_offset >= start_offset)


def _first_record(
    segment: Segment, located: Located, timestamp: int, start_offset: int, patience: Patience
) -> tuple[int, int] | None:
    header, batch = located.header, segment.batch_at(located)
    if patience.suffices_for(header):
        try:
            return find_timestamp(batch, timestamp, from_offset=start_offset, size_max=BODY_BYTES_MAX)
        except ApiError:
            pass
    return max(header.base_offset, start_offset), header.max_timestamp
