"""A log that is written to: batches at its end, and the segments that take them.

Whoever decides what is written, a leader or a follower, is built on this. What must stay true of writing is said in
`partition_log.py`.
"""

from __future__ import annotations

from ottla.log import gaps
from ottla.log.failures import (
    failed,
    is_out_of_files,
    is_out_of_space,
    out_of_files,
    out_of_space,
    storage_errors,
    unreadable,
)
from ottla.log.keeping import KeptLog
from ottla.log.producer_replay import Marker
from ottla.log.recovery import new_segment
from ottla.log.rolling import is_old, roll_timestamp
from ottla.log.segment import Segment
from ottla.log.segment_indexes import RELATIVE_OFFSET_MAX
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.wire.batch import LENGTH_PREFIX_BYTES, BatchHeader, assign


class WritableLog(KeptLog):
    """The writing side of a partition's log."""

    __slots__ = ()

    def _write_marker(self, batch: memoryview, header: BatchHeader, marker: Marker | None, now_ms: int) -> None:
        """Write a marker that has its place; before it the index entry of the transaction that it aborts, if any."""
        base_offset, last_offset, leader_epoch = header.base_offset, header.last_offset, header.partition_leader_epoch
        aborts = marker is not None and marker.aborts
        aborted = self.producers.aborted_by(header.producer_id, base_offset) if aborts else None
        if aborted is None:
            self._write(batch, base_offset, last_offset, header.max_timestamp, leader_epoch, now_ms)
            return
        segment = self._make_room(len(batch), base_offset, last_offset, header.max_timestamp, now_ms)
        try:
            if segment.transactions is None:
                self._names.changed()
            segment.index_aborted(aborted)
            self._write(batch, base_offset, last_offset, header.max_timestamp, leader_epoch, now_ms)
        except (OSError, OttlaError) as error:
            try:
                segment.unindex_aborted(base_offset)
            except OSError as worse:
                raise failed(self.directory, worse) from worse
            if isinstance(error, OSError):
                raise self._not_written(error) from error
            raise
        self.last_aborted_offset = base_offset

    def _write(
        self, batch: memoryview, base_offset: int, last_offset: int, max_timestamp: int, leader_epoch: int, now_ms: int
    ) -> None:
        size = len(batch)
        segment = self.active
        if (
            max_timestamp > segment.roll_timestamp
            or segment.size + size > self._segment_bytes
            or last_offset > segment.last_offset_max
        ):
            segment = self._make_room(size, base_offset, last_offset, max_timestamp, now_ms)
        self._put(segment, batch, size, base_offset, last_offset, max_timestamp, leader_epoch)

    def _put(
        self,
        segment: Segment,
        batch: memoryview,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
    ) -> None:
        """Write a batch to the active segment, which has room for it."""
        try:
            assign(batch, 0, base_offset, size - LENGTH_PREFIX_BYTES, leader_epoch)
            segment.append(batch, size, base_offset, last_offset, max_timestamp)
        except OSError as error:
            raise self._not_written(error) from error
        self.log_end_offset = last_offset + 1
        if leader_epoch != self.epochs.latest and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, base_offset)

    def _make_room(
        self, size: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int, *, bounded: bool = True
    ) -> Segment:
        """The segment for a batch that may not fit the active one; not `bounded`, a larger one gets its own."""
        self._check_open()
        if bounded and size > self._segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {size} bytes, segment.bytes of {self.tp} is {self._segment_bytes}",
            )
        segment = self.active
        if segment.size + size > self._segment_bytes or last_offset > segment.last_offset_max:
            self._roll_before(base_offset, last_offset, now_ms)
        elif segment.size:
            try:
                segment.roll_timestamp = roll_timestamp(segment, self._config)
                has_aged = is_old(segment, self._config, max_timestamp, now_ms)
            except OSError as error:
                raise unreadable(self.directory, error) from error
            if has_aged:
                self._roll_before(base_offset, last_offset, now_ms)
        return self.active

    def _roll_before(self, base_offset: int, last_offset: int, now_ms: int) -> None:
        """Begin a segment for this batch at the end of the log, although a leader's compaction may have left nothing
        between that and the batch. After a crash, segments with a gap between them look as if one were lost.

        Where no index spans the gap an empty segment stays behind, and a mark says that it is one.
        """
        self._roll(self.log_end_offset, now_ms)
        if last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX:
            try:
                gaps.mark(self._disk, self.directory, self.log_end_offset, base_offset)
            except OSError as error:
                raise self._not_written(error) from error
            self._roll(base_offset, now_ms)

    def _not_written(self, error: OSError) -> OttlaError:
        """What to tell after a failed write, with the file as it was before."""
        lacks_files = is_out_of_files(error)
        if not lacks_files and not is_out_of_space(error):
            return failed(self.directory, error)
        try:
            if not lacks_files or self.active.log.file is not None:
                self.active.cut_back()
        except OSError as worse:
            return failed(self.directory, worse)
        return (out_of_files if lacks_files else out_of_space)(self.directory, error)

    # -- segments

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin a new one, unless it is empty."""
        self._check_open()
        self._roll(self.log_end_offset, now_ms)

    def roll_due(self, now_ms: int) -> bool:
        """Whether the active segment has reached `segment.ms`, for logs that nobody writes to."""
        return is_old(self.active, self._config, now_ms, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Begin a segment at `base_offset`. After a failure everything is as it was."""
        old = self.active
        if not old.size and old.base_offset == base_offset:
            return
        segment = new_segment(self.directory, base_offset, self._config, self._files, now_ms=now_ms)
        try:
            old.seal()
            segment.create()
            self._snapshots.write(base_offset, self.producers.to_snapshot())
        except OSError as error:
            with storage_errors(self.directory):
                segment.remove_files()
                self._snapshots.remove([base_offset])
            raise self._not_written(error) from error
        old.sealed = True
        old.rest()
        self._set_segments([*self.segments, segment])
