"""Producer state from the log itself: after a restart, after a truncation, and for batches that a leader sent.

Headers are enough, except for a transaction marker, whose one record says how the transaction ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ottla.log.producer_state import CompletedTransaction, ProducerStates
from ottla.log.scan import TornBatchError, walk
from ottla.log.segment import Located, Segment
from ottla.log.snapshot_files import SnapshotFiles
from ottla.log.transaction_index import AbortedTransaction
from ottla.model.errors import CorruptLogError
from ottla.wire.batch import BatchHeader
from ottla.wire.records import iterate

MARKER_ABORT: Final = 0
MARKER_COMMIT: Final = 1

_MARKER_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")


class Marker(NamedTuple):
    """What a control batch says of its producer's transaction."""

    aborts: bool
    coordinator_epoch: int
    timestamp: int


def replay(
    producers: ProducerStates, header: BatchHeader, read_batch: Callable[[], bytes | memoryview]
) -> CompletedTransaction | None:
    """Note a batch that is in the log. Nothing is checked: whoever put it there has done so."""
    if header.producer_id < 0:
        return None
    if header.is_control:
        return _replay_marker(producers, header, read_batch())
    producers.update(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp,
        header.attributes,
    )
    return None


def read_marker(batch: bytes | memoryview) -> Marker | None:
    """The marker; None if compaction has emptied the batch, or if it is a control batch of another kind."""
    for record in iterate(batch):
        try:
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
        except StructError:
            raise CorruptLogError(f"offset {record.offset} should be a transaction marker and is not") from None
        return Marker(kind == MARKER_ABORT, coordinator_epoch, record.timestamp) if kind <= MARKER_COMMIT else None
    return None


def _replay_marker(
    producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview
) -> CompletedTransaction | None:
    marker = read_marker(batch)
    if marker is None:
        return None
    aborted, coordinator_epoch, timestamp = marker
    return producers.complete(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        header.base_offset,
        timestamp,
        aborted=aborted,
    )


def rebuild(
    producers: ProducerStates,
    snapshots: SnapshotFiles,
    segments: Sequence[Segment],
    *,
    log_start_offset: int,
    end_offset: int,
) -> None:
    """State as of `end_offset`: from the last good snapshot before it, and the batches in between."""
    snapshots.remove_outside(log_start_offset, end_offset)
    offset, entries = snapshots.read_latest(end_offset) or (log_start_offset, [])
    producers.load_snapshot(entries)
    for _ in _replay_range(producers, segments, offset, end_offset):
        pass


def state_at(
    snapshots: SnapshotFiles, segments: Sequence[Segment], *, log_start_offset: int, end_offset: int
) -> ProducerStates:
    """What `rebuild` would come to, leaving everything as it is; for a log that is about to be cut."""
    producers = ProducerStates()
    offset, entries = snapshots.read_latest(end_offset) or (log_start_offset, [])
    producers.load_snapshot(entries)
    for _ in _replay_range(producers, segments, offset, end_offset):
        pass
    return producers


def aborted_in_segment(
    snapshots: SnapshotFiles, segments: Sequence[Segment], segment: Segment, *, log_start_offset: int
) -> list[AbortedTransaction]:
    """The transaction index of one segment, from its markers. Begins with what is known of the producers before it."""
    producers = state_at(snapshots, segments, log_start_offset=log_start_offset, end_offset=segment.base_offset)
    aborted = []
    for completed in _replay_segment(producers, segment, segment.base_offset, None):
        if completed.aborted:
            aborted.append(producers.index_entry_of(completed))
    return aborted


def _replay_range(
    producers: ProducerStates, segments: Sequence[Segment], start_offset: int, end_offset: int
) -> Iterator[CompletedTransaction]:
    for index, segment in enumerate(segments):
        if segment.base_offset < end_offset and (
            index + 1 == len(segments) or segments[index + 1].base_offset > start_offset
        ):
            yield from _replay_segment(producers, segment, start_offset, end_offset)


def _replay_segment(
    producers: ProducerStates, segment: Segment, start_offset: int, end_offset: int | None
) -> Iterator[CompletedTransaction]:
    """Note the batches of a range, and give the transactions that end in it, each before the next batch is noted."""
    first = segment.locate(start_offset)
    if first is None:
        return
    try:
        for position, header in walk(segment.log.get(), first.position, segment.size):
            if end_offset is not None and header.base_offset >= end_offset:
                return
            completed = replay(producers, header, partial(segment.batch_at, Located(position, header)))
            if completed is not None:
                yield completed
    except TornBatchError as error:
        raise CorruptLogError(f"{segment.path}: {error}") from error
