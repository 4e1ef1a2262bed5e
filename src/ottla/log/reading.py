"""A log as its readers see it: bytes by offset, offsets by time.

The common case is a consumer at the end of the log, which the tail of the active segment answers from memory.
Everything else looks into indexes and headers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from ottla.log import timestamps
from ottla.log.epochs import LeaderEpochs
from ottla.log.failures import storage_errors, unreadable
from ottla.log.reading_place import ReadingPlace
from ottla.log.segment import Segment
from ottla.log.timestamps import TimestampedOffset
from ottla.log.transaction_index import AbortedTransaction, aborted_transactions
from ottla.model.chunks import FileSlice, SendableFile
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, read_header

_base_offset: Final = attrgetter("base_offset")
HEADERS_SOON_MAX: Final = 4
"""Batches larger than `index.interval.bytes` have an entry each, so that the second one is it already."""
_T = TypeVar("_T")
Shown: TypeAlias = Callable[[FileSlice, memoryview], None] | None

# What calling the class does, without a Python frame.
_file_slice: Callable[[tuple[SendableFile, int, int, Shown]], FileSlice] = partial(tuple.__new__, FileSlice)


class ReadableLog:
    """The reading side of a partition's log."""

    __slots__ = (
        "_closed",
        "active",
        "directory",
        "epochs",
        "last_aborted_offset",
        "log_end_offset",
        "log_start_offset",
        "segments",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        directory: str,
        segments: list[Segment],
        epochs: LeaderEpochs,
        *,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.tp = tp
        self.directory = directory
        self.segments = segments
        """Oldest first. Replaced as a whole, so that threads may keep the one they have."""
        self.active = segments[-1]
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.last_aborted_offset = max(
            (segment.transactions.last_offset for segment in segments if segment.transactions is not None), default=-1
        )
        """No abort marker lies beyond it."""
        self._closed = False

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the log, -1 if there is none. May read one index entry per segment."""
        return max(segment.max_timestamp for segment in self.segments)

    def read(self, offset: int, max_bytes: int, max_offset: int, at_least_one: bool) -> FileSlice | None:
        """Bytes from the batch that holds `offset` on, below `max_offset`; None if there is nothing yet.

        At most `max_bytes`, and it may end inside a batch; but if the first batch is larger, that one comes whole where
        `at_least_one`, else nothing. From one segment per call.
        """
        end_offset = self.log_end_offset
        if offset >= max_offset and self.log_start_offset <= offset <= end_offset:
            return None
        segment = self.active
        tail = segment.tail
        if tail is None or offset < tail.start or offset >= end_offset or offset < self.log_start_offset:
            return self._read_elsewhere(offset, max_bytes, max_offset, at_least_one)
        found = bisect_left(tail.last_offsets, offset)
        position = tail.positions[found]
        end = segment.size
        length = (end if max_offset >= end_offset else tail.position_of(max_offset, end)) - position
        if length > max_bytes:
            first = (tail.positions[found + 1] if found + 1 < len(tail.positions) else end) - position
            length = max_bytes
            if first > max_bytes:
                if not at_least_one:
                    return None
                length = first
        if length <= 0:
            return None
        try:
            return _file_slice((segment.log.get(), position, length, None))
        except OSError as error:
            raise unreadable(self.directory, error) from error

    def _read_elsewhere(self, offset: int, max_bytes: int, max_offset: int, at_least_one: bool) -> FileSlice | None:
        """The same, for an offset that the tail does not know."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.tp} has offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        self._check_open()
        if max_bytes <= 0 and not at_least_one:
            return None  # There is no room in the answer: no file is opened for that.
        try:
            return read_slice(self.segments, self.log_end_offset, offset, max_bytes, max_offset, at_least_one)
        except OSError as error:
            raise unreadable(self.directory, error) from error

    def read_on(self, place: ReadingPlace, offset: int, max_bytes: int, max_offset: int) -> FileSlice | None:
        """As `read` with at least one batch, for a reader that goes on where its last read has ended, or nearly."""
        segment = place.segment
        if (
            segment is None
            or not place.first_offset <= offset <= place.last_offset
            or place.segments is not self.segments
            or not self.log_start_offset <= offset < max_offset
            or self._closed
        ):
            return self._read_at_new_place(place, offset, max_bytes, max_offset)
        position, first_bytes = place.position, place.size
        try:
            end = segment.size if max_offset >= self.log_end_offset else position_of(segment, max_offset)
            file = segment.log.get()
        except OSError as error:
            raise unreadable(self.directory, error) from error
        length = min(max(max_bytes, first_bytes), end - position)
        place.read_position = position
        return _file_slice((file, position, length, place.show)) if length >= first_bytes else None

    def _read_at_new_place(self, place: ReadingPlace, offset: int, max_bytes: int, max_offset: int) -> FileSlice | None:
        records = self.read(offset, max_bytes, max_offset, True)
        tail, segments = self.active.tail, self.segments
        if records is None or (tail is not None and offset >= tail.start):
            return records  # Near the end of the log a place is found as soon without.
        segment = segments[segment_index(segments, offset)]
        if segment.log.file is not records.file:
            return records
        place.segment, place.segments, place.read_position = segment, segments, records.position
        place.last_offset = place.first_offset - 1
        return records._replace(shown=place.show)

    def aborted_transactions(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records in a range, in the order of their markers.

        One that ended before the range is not among them: a reader would wait for its marker in vain, and drop what the
        producer wrote later.
        """
        if fetch_offset > self.last_aborted_offset:
            return []
        segments = self.segments
        with storage_errors(self.directory):
            return aborted_transactions(
                segments[segment_index(segments, fetch_offset) :], fetch_offset, upper_bound_offset
            )

    def aborted_in(self, records: FileSlice, fetch_offset: int, max_offset: int) -> list[AbortedTransaction]:
        """The same for bytes that `read` has just given, which need not reach up to `max_offset`."""
        if fetch_offset > self.last_aborted_offset:
            return []
        with storage_errors(self.directory):
            upper_bound_offset = self._upper_bound(records, fetch_offset, max_offset)
        return self.aborted_transactions(fetch_offset, upper_bound_offset)

    def _upper_bound(self, records: FileSlice, fetch_offset: int, max_offset: int) -> int:
        """An offset that the records do not reach, not far beyond them as a rule."""
        segments = self.segments
        for index in range(segment_index(segments, fetch_offset), len(segments)):
            segment = segments[index]
            if segment.log.get() is records.file:
                key = segment.indexes.offsets.first_from(records.position + records.length)
                if key is not None:
                    return min(segment.base_offset + key, max_offset)
                return min(segments[index + 1].base_offset, max_offset) if index + 1 < len(segments) else max_offset
            if segment.base_offset >= max_offset:
                break
        return max_offset

    def bytes_available(self, offset: int, max_offset: int) -> int:
        """About how many bytes there are to read; exact near the end of the log, and reads no file."""
        end = min(max_offset, self.log_end_offset)
        return max(bytes_between(self.segments, self.log_end_offset, offset, end), 1) if offset < end else 0

    def offset_for_timestamp(self, timestamp: int, max_offset: int) -> TimestampedOffset | None:
        """The first record below `max_offset` that is not older than `timestamp`. Reads and unpacks; any thread."""
        found = self._with_segments(lambda s: timestamps.first_at_or_after(s, timestamp, self.log_start_offset))
        return found if found is not None and found.offset < max_offset else None

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp. Reads and unpacks; any thread."""
        return self._with_segments(timestamps.youngest)

    def _with_segments(self, read: Callable[[Sequence[Segment]], _T]) -> _T:
        """Run a reader on the segments as they are, and again if one of them was dropped under it."""
        with storage_errors(self.directory):
            while True:
                segments = self.segments
                try:
                    return read(segments)
                except FileNotFoundError:
                    if segments is self.segments:
                        raise

    def _check_open(self) -> None:
        if self._closed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.tp} is closed")


def segment_index(segments: Sequence[Segment], offset: int) -> int:
    """Which segment holds `offset`, the first one if all begin after it."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def read_slice(
    segments: Sequence[Segment],
    log_end_offset: int,
    offset: int,
    max_bytes: int,
    max_offset: int,
    at_least_one: bool,
) -> FileSlice | None:
    """As `PartitionLog.read`. An offset in a gap that compaction left gives the next batch there is."""
    for index in range(segment_index(segments, offset), len(segments)):
        segment = segments[index]
        if segment.base_offset >= max_offset:
            return None
        found = _locate_soon(segment, offset)
        if found is None:
            located = segment.locate(offset)
            if located is None:
                continue
            found = located.position, located.header.size
        position, first_bytes = found
        end = segment.size if max_offset >= log_end_offset else position_of(segment, max_offset)
        length = min(max(max_bytes, first_bytes if at_least_one else 0), end - position)
        return _file_slice((segment.log.get(), position, length, None)) if length >= first_bytes else None
    return None


def _locate_soon(segment: Segment, offset: int) -> tuple[int, int] | None:
    """Position and size of the batch that `Segment.locate` would find, if the index leads close to it.

    The same walk without its care: whatever looks odd ends it, and the careful one finds out what it is.
    """
    entry = segment.indexes.offsets.floor(offset - segment.base_offset)
    if entry is None:
        return None
    key, position = entry
    file, end = segment.log.get(), segment.size
    expected = segment.base_offset + key
    for _ in range(HEADERS_SOON_MAX):
        header = file.pread(HEADER_BYTES, position)
        if len(header) < HEADER_BYTES:
            return None
        base_offset, length, _, magic, _, _, last_delta, *_ = read_header(header)
        size = LENGTH_PREFIX_BYTES + length
        last_offset = base_offset + last_delta
        if magic != MAGIC or size <= HEADER_BYTES or position + size > end or last_offset < expected:
            return None
        if last_offset >= offset:
            return position, size
        position += size
        expected = last_offset + 1
    return None


def position_of(segment: Segment, offset: int) -> int:
    """Where the first batch that reaches `offset` begins, at most the end of the segment."""
    tail = segment.tail
    if tail is not None and offset >= tail.start:
        return tail.position_of(offset, segment.size)
    located = segment.locate(offset)
    return segment.size if located is None else located.position


def bytes_between(segments: Sequence[Segment], log_end_offset: int, start: int, end: int) -> int:
    """About how many bytes lie between two offsets; exact where the tail knows them, and reads no file."""
    first, last = segment_index(segments, start), segment_index(segments, end)
    between = sum(segment.size for segment in segments[first:last])
    return (
        between
        + _bytes_before(segments, last, log_end_offset, end)
        - _bytes_before(segments, first, log_end_offset, start)
    )


def _bytes_before(segments: Sequence[Segment], index: int, log_end_offset: int, offset: int) -> int:
    segment = segments[index]
    if segment.tail is not None and offset >= segment.tail.start:
        return segment.tail.position_of(offset, segment.size)
    end = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
    share = (offset - segment.base_offset) / max(end - segment.base_offset, 1)
    return int(segment.size * min(max(share, 0.0), 1.0))
