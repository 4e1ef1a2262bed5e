"""A log that follows its leader's: batches as the leader wrote them, and going back where the two parted.

Theory of operation. A leader sends runs of batches. `append_as_follower` looks at each header and checksum, and writes
as many batches as fit the segment in one piece; only transaction markers, which have an index entry of their own, are
written one by one. A follower whose log parted from its leader's cuts off what the leader does not have (`truncate_to`)
or begins anew where the leader's log begins (`truncate_fully_and_start_at`).

How to go back, in this order, or a crash leaves a log that nobody wrote:
1. Store a recovery point (`safe_after_cut`, `safe_to_begin_anew`), and a log start, that are no higher than where the
   log may end from now on.
2. `producers_at` in a thread, `truncate_to` on the loop.
3. `sync_truncation` in a thread, before anything is appended. Else a crash may bring back what was cut off behind
   what was written since, and the two could look like one log.

What an editor must keep true:
- Nothing is written that does not match its checksum, that begins below the end of the log, or whose leader epoch is
  older than one before it.
- State changes only after the write of a run has succeeded.
- Each cut counts in `truncations`: a sync that began before it says nothing about what is in the log after it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.log import gaps, producer_replay
from ottla.log.failures import storage_errors
from ottla.log.producer_state import ProducerStates
from ottla.log.reading import segment_index
from ottla.log.recovery import new_segment
from ottla.log.segment import Segment
from ottla.log.writing import WritableLog
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)
from ottla.wire.crc import crc32c

BATCHES_UNBOUNDED: Final = 1 << 62
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES


class FollowingLog(WritableLog):
    """The follower's side of a partition's log."""

    __slots__ = ("_producer_id_expiration_ms",)

    _producer_id_expiration_ms: int

    def append_as_follower(self, batches: memoryview, now_ms: int = 0, batches_max: int = BATCHES_UNBOUNDED) -> int:
        """Write batches as a leader wrote them, offsets and epochs kept; returns how many bytes were taken.

        One that is cut off at the end is left out, and so is what comes after `batches_max`: call again for the rest.
        ApiError: CORRUPT_MESSAGE, or no space is left. What comes before the bad batch has been written then.
        """
        run: list[BatchHeader] = []
        position = start = 0
        end, count = len(batches), 0
        next_offset, epoch = self.log_end_offset, self.epochs.latest
        room, entries_left = self._room(), self._entries_left()
        while end - position >= HEADER_BYTES and count < batches_max:
            header = read_header(batches, position)
            base_offset, length, leader_epoch, magic, crc, attributes, last_delta, _, max_timestamp, *_ = header
            after = position + LENGTH_PREFIX_BYTES + length
            if after > end and magic == MAGIC and length >= _LENGTH_MIN:
                break
            if (
                magic != MAGIC
                or length < _LENGTH_MIN
                or last_delta < 0
                or base_offset < next_offset
                or (leader_epoch < epoch and leader_epoch >= 0)
                or crc32c(batches[position + CRC_START : after]) != crc
            ):
                self._write_run(batches[start:position], run)
                raise self._refusal(batches[position:after], header)
            if attributes & CONTROL_BIT and header.producer_id >= 0:
                self._write_run(batches[start:position], run)
                self._write_foreign_marker(batches[position:after], header, now_ms)
                run, start, room, entries_left = [], after, self._room(), self._entries_left()
            else:
                segment, last_offset = self.active, base_offset + last_delta
                if (
                    after - start > room
                    or max_timestamp > segment.roll_timestamp
                    or last_offset > segment.last_offset_max
                    or len(run) >= entries_left
                ):
                    self._write_run(batches[start:position], run)
                    size = after - position
                    self._make_room(size, base_offset, last_offset, max_timestamp, now_ms, bounded=False)
                    # A batch that is larger than any segment has one for itself.
                    run, start, room = [], position, max(self._room(), size)
                    entries_left = max(self._entries_left(), 1)
                run.append(header)
            next_offset, epoch = base_offset + last_delta + 1, leader_epoch
            position = after
            count += 1
        self._write_run(batches[start:position], run)
        return position

    def _room(self) -> int:
        return self._segment_bytes - self.active.size

    def _entries_left(self) -> int:
        """How many batches may come before it must be looked whether the index is full."""
        return self.active.index_entries_max - self.active.indexes.offsets.count

    def _write_run(self, batches: memoryview, run: list[BatchHeader]) -> None:
        """Write batches that fit the active segment, and note what they say."""
        if not run:
            return
        try:
            last_offsets = [header[0] + header[6] for header in run]
            self.active.append_run(batches, run, run[0].base_offset, last_offsets)
        except OSError as error:
            raise self._not_written(error) from error
        self.log_end_offset = last_offsets[-1] + 1
        latest, update = self.epochs.latest, self.producers.update
        for header in run:
            base_offset, _, epoch, _, _, attributes, last_delta, _, max_timestamp, producer_id, *rest = header
            if epoch != latest and epoch >= 0:
                self.epochs.assign(epoch, base_offset)
                latest = epoch
            if producer_id >= 0:
                update(producer_id, rest[0], rest[1], base_offset, last_delta, max_timestamp, attributes)

    def _write_foreign_marker(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        copy = memoryview(bytearray(batch))  # What came from the network may not be writable.
        self._write_marker(copy, header, producer_replay.read_marker(copy), now_ms)
        producer_replay.replay(self.producers, header, partial(bytes, copy))

    def _refusal(self, batch: memoryview, header: BatchHeader) -> ApiError:
        if header.magic != MAGIC or header.length < _LENGTH_MIN or header.last_offset_delta < 0:
            reason = f"no record batch: magic {header.magic}, length {header.length}"
        elif header.base_offset < self.log_end_offset:
            reason = f"batch {header.base_offset} cannot follow, the log ends at {self.log_end_offset}"
        elif 0 <= header.partition_leader_epoch < self.epochs.latest:
            epoch = header.partition_leader_epoch
            reason = f"batch {header.base_offset} of leader epoch {epoch} cannot follow epoch {self.epochs.latest}"
        else:
            reason = f"batch {header.base_offset} does not match its CRC"
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.tp}: {reason}")

    # -- going back

    def safe_after_cut(self, offset: int) -> int:
        """A recovery point that is no higher than where the log will end when it is cut at `offset`.

        That may be below `offset`: a batch that holds it goes whole, and compaction leaves gaps before a batch.
        """
        return min(offset, self.segments[segment_index(self.segments, offset - 1)].base_offset)

    def safe_to_begin_anew(self, offset: int) -> int:
        """The same for `truncate_fully_and_start_at`: a crash may come when any of the segments are gone."""
        return min(offset, self.segments[0].base_offset)

    def end_after_cut(self, offset: int) -> int:
        """Where the log will end when it is cut at `offset`: that is where the batch before ends."""
        if offset >= self.log_end_offset or offset <= self.segments[0].base_offset:
            return min(offset, self.log_end_offset)
        segment = self.segments[segment_index(self.segments, offset - 1)]
        end_offset = segment.base_offset

        def reaches(header: BatchHeader) -> bool:
            nonlocal end_offset
            if header.last_offset < offset:
                end_offset = header.last_offset + 1
            return header.last_offset >= offset

        with storage_errors(self.directory):
            segment.find(offset - 1, reaches)
        return end_offset

    def producers_at(self, offset: int) -> ProducerStates:
        """What `truncate_to(offset)` needs to know of the producers. May read a segment; any thread, while nobody
        appends."""
        if not len(self.producers):
            return ProducerStates()  # Whoever was here before and is forgotten now would be forgotten then, too.
        with storage_errors(self.directory):
            return producer_replay.state_at(
                self._snapshots,
                self.segments,
                log_start_offset=self.log_start_offset,
                end_offset=self._end_after_cut(offset),
            )

    def _end_after_cut(self, offset: int) -> int:
        """Where the log ends when the batch that holds `offset` is gone."""
        located = self.segments[segment_index(self.segments, offset - 1)].locate(offset)
        return offset if located is None else min(offset, located.header.base_offset)

    def truncate_to(self, offset: int, now_ms: int = 0, producers: ProducerStates | None = None) -> list[Segment]:
        """Cut off the batch that holds `offset` and all after it; returns dropped segments for `delete_files`.

        `producers` is what `producers_at` has said, where that was asked in a thread before.
        """
        if offset >= self.log_end_offset:
            # An epoch in which nothing was written goes, too: the leader need not know it.
            self.epochs.truncate_from_end(self.log_end_offset)
            return []
        if offset <= self.segments[0].base_offset:
            return self.truncate_fully_and_start_at(offset, now_ms)
        if producers is None:
            producers = self.producers_at(offset)
        index = segment_index(self.segments, offset - 1)
        dropped = self.segments[index + 1 :]
        self.truncations += 1
        with storage_errors(self.directory):
            self._set_segments(self.segments[: index + 1])
            self._mark_deleted(dropped[::-1])
            gaps.unmark(self._disk, self.directory, self.segments)
            if self.active.indexes.are_in_memory:
                self.active.rebuild(check_crc=False)  # It will be appended to, and its index files are wrong.
            self.active.sealed = False
            self.active.truncate_to(offset)
            self.log_end_offset = self.active.load_tail()
            self.config = self._config
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.last_aborted_offset = min(self.last_aborted_offset, self.log_end_offset - 1)
            self.epochs.truncate_from_end(self.log_end_offset)
            self._snapshots.remove_outside(self.log_start_offset, self.log_end_offset)
            self.producers = producers
            self.producers.expire(now_ms, self._producer_id_expiration_ms)
        return dropped

    def truncate_fully_and_start_at(
        self, offset: int, now_ms: int = 0, *, log_start_offset: int | None = None
    ) -> list[Segment]:
        """Forget everything and go on at `offset`; returns the dropped segments for `delete_files`.

        `log_start_offset` is larger where the log begins inside of the first batch that will come.
        """
        dropped = self.segments
        segment = new_segment(self.directory, offset, self._config, self._files, now_ms=now_ms)
        has_old_name = any(old.base_offset == offset for old in dropped)
        self.truncations += 1
        with storage_errors(self.directory):
            if not has_old_name:
                segment.create()
            self._set_segments([segment])
            self._mark_deleted(dropped[::-1])
            gaps.unmark(self._disk, self.directory, self.segments)
            self._snapshots.remove(self._snapshots.offsets)
            if has_old_name:
                segment.create()
        self.log_end_offset = offset
        self.log_start_offset = offset if log_start_offset is None else max(offset, log_start_offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.last_aborted_offset = -1
        self.epochs.clear()
        self.producers = ProducerStates()
        return dropped

    def sync_truncation(self) -> None:
        """Return when a crash cannot undo a truncation. Blocks; any thread, before the next append."""
        with storage_errors(self.directory):
            try:
                self._disk.sync_dir(self.directory)
                self.active.sync_batches()
                self._store(lambda: gaps.expect_none_from(self._disk, self.directory, self.log_end_offset))
            except FileNotFoundError as error:
                if not self._is_gone(error):
                    raise
