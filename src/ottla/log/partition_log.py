"""The log of one partition, with the leader's side of it; the follower's is in `following.py`.

Theory of operation. A log is a list of segments; the last one is appended to. A batch comes in checked, gets its
offset and its leader's epoch written into it, and goes to the end of the file in one write. It leaves as a
`FileSlice`: the bytes go from the file to the socket and never enter Python.

Threads. A log belongs to the loop. These may be called from any thread: `sync_until`, `offset_for_timestamp`,
`offset_of_max_timestamp`, `delete_files`, and what says so itself. They work on `segments` as it was when they began:
the list is replaced, never changed in place.

What an editor must keep true:
- `append` changes nothing before its write has succeeded; a write that ran out of space is cut back and leaves no
  trace.
- `recovery_point` moves only to an offset for which `sync_until` has returned: files, their names, the leader epochs.
- Sealing writes the indexes and the producer snapshot before the new segment takes over. None of them is synced on the
  loop; `sync_until` does it later, and recovery does without them until then.
- Whoever lowers what is safe (`truncate_to`) stores the lower recovery point first, else a crash looks like corruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ottla.log import checkpoints, names, producer_replay, recovery
from ottla.log.disk import Disk
from ottla.log.failures import storage_errors, unreadable
from ottla.log.following import FollowingLog
from ottla.log.handles import OpenFiles
from ottla.log.producer_state import PRODUCER_ID_EXPIRATION_MS_DEFAULT, SEQUENCE_MAX, remembered
from ottla.log.recovery import LoadedLog
from ottla.log.retention import expired_segments
from ottla.log.segment import Segment
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, OutOfSpaceError
from ottla.model.ids import NO_TIMESTAMP, TopicPartition
from ottla.wire.batch import CONTROL_BIT, LENGTH_PREFIX_BYTES, BatchHeader, assign_run, set_log_append_time


class Appended(NamedTuple):
    """Where a batch is in the log."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the broker stamps the records."""
    duplicate: bool
    """The producer has sent it before, and it was written then."""


# What calling the class does, without a Python frame.
new_appended: Callable[[tuple[int, int, int, bool]], Appended] = partial(tuple.__new__, Appended)


class PartitionLog(FollowingLog):
    """The log of one partition, in one directory."""

    __slots__ = ("topic_id",)

    def __init__(
        self,
        tp: TopicPartition,
        config: TopicConfig,
        disk: Disk,
        files: OpenFiles,
        loaded: LoadedLog,
        *,
        topic_id: UUID | None,
        now_ms: int,
        producer_id_expiration_ms: int,
    ) -> None:
        super().__init__(tp, config, disk, files, loaded, now_ms)
        self.topic_id = topic_id
        self._producer_id_expiration_ms = producer_id_expiration_ms

    @classmethod
    def open(
        cls,
        directory: str,
        tp: TopicPartition,
        config: TopicConfig,
        disk: Disk,
        files: OpenFiles,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool,
        now_ms: int,
        topic_id: UUID | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS_DEFAULT,
    ) -> PartitionLog:
        """Open the log in `directory`, or begin an empty one there.

        `clean` says that the log was closed properly; then this takes less than a millisecond. If not, everything from
        the recovery point on is read and checked. CorruptLogError if what was safe on disk is not there any more.
        """
        try:
            loaded = recovery.load(
                directory,
                config,
                disk,
                files,
                log_start_offset=log_start_offset,
                recovery_point=recovery_point,
                clean=clean,
                now_ms=now_ms,
                producer_id_expiration_ms=producer_id_expiration_ms,
            )
            topic_id = _settle_topic_id(disk, directory, topic_id)
        except OSError as error:
            raise unreadable(directory, error) from error
        return cls(
            tp,
            config,
            disk,
            files,
            loaded,
            topic_id=topic_id,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )

    # -- writing

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Write one batch that `wire.batch.check` has passed; its offset and epoch are written into `batch`.

        ApiError: the producer's sequence or epoch is wrong, or there is no space left; nothing has changed then.
        StorageError: the log directory has failed.
        """
        _, _, _, _, _, attributes, last_delta, _, max_timestamp, producer_id, producer_epoch, sequence, _ = header
        base_offset = self.log_end_offset
        if producer_id >= 0:
            if attributes & CONTROL_BIT:
                return self._append_marker(batch, header, leader_epoch, now_ms)
            known = self.producers.check(producer_id, producer_epoch, sequence, last_delta, attributes)
            if known is not None:
                time_ms = known.timestamp if self._stamps else NO_TIMESTAMP
                return Appended(known.base_offset, known.last_offset, time_ms, True)
        log_append_time_ms = NO_TIMESTAMP
        if self._stamps:
            set_log_append_time(batch, now_ms)
            log_append_time_ms = max_timestamp = now_ms
        last_offset = base_offset + last_delta
        self._write(batch, base_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        if producer_id >= 0:
            self.producers.update(
                producer_id, producer_epoch, sequence, base_offset, last_delta, max_timestamp, attributes
            )
        return new_appended((base_offset, last_offset, log_append_time_ms, False))

    def append_next(self, batch: memoryview, header: BatchHeader, leader_epoch: int) -> int | None:
        """`append_run` of one batch, if it is the most frequent one: what its producer sends next, where it fits."""
        _, length, _, _, _, _, last_delta, _, max_timestamp, producer_id, producer_epoch, sequence, _ = header
        base_offset, segment = self.log_end_offset, self.active
        last_offset, size = base_offset + last_delta, LENGTH_PREFIX_BYTES + length
        if (
            max_timestamp > segment.roll_timestamp
            or segment.size + size > self._segment_bytes
            or last_offset > segment.last_offset_max
            or self._stamps
        ):
            return None
        producer = None
        if producer_id >= 0:
            producer = self.producers.expecting(producer_id, producer_epoch, sequence)
            if producer is None:
                return None
        self._put(segment, batch, size, base_offset, last_offset, max_timestamp, leader_epoch)
        if producer is not None:
            last_sequence = (sequence + last_delta) & SEQUENCE_MAX
            producer.remember(remembered((sequence, last_sequence, base_offset, last_offset, max_timestamp)))
        return base_offset

    def append_run(
        self, batches: bytearray | list[memoryview], headers: Sequence[BatchHeader], leader_epoch: int
    ) -> int | None:
        """Write batches of producers in one piece, one behind the other; returns the offset of the first one.

        None, and nothing has changed, if they must be appended one by one: they do not fit the segment, one is
        refused, was written before or is its producer's first, the broker stamps them. Errors as those of `append`;
        then the batches may have got offsets all the same.
        """
        base_offset = next_offset = self.log_end_offset
        size, largest, has_producers = 0, NO_TIMESTAMP, False
        last_offsets = []
        for _, length, _, _, _, _, last_delta, _, max_timestamp, producer_id, _, _, _ in headers:
            size += LENGTH_PREFIX_BYTES + length
            last_offsets.append(next_offset + last_delta)
            next_offset += last_delta + 1
            if max_timestamp > largest:
                largest = max_timestamp
            if producer_id >= 0:
                has_producers = True
        segment = self.active
        if (
            self._stamps
            or largest > segment.roll_timestamp
            or segment.size + size > self._segment_bytes
            or next_offset - 1 > segment.last_offset_max
            or len(headers) >= self._entries_left()
            or (has_producers and not self._are_next(headers))
        ):
            return None
        assign_run(batches, headers, last_offsets, leader_epoch)
        try:
            segment.append_run(batches, headers, base_offset, last_offsets)
        except OSError as error:
            raise self._not_written(error) from error
        self.log_end_offset = next_offset
        if leader_epoch != self.epochs.latest and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, base_offset)
        if has_producers:
            self._note_producers(headers, last_offsets)
        return base_offset

    def _are_next(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether each batch is the one that its producer may write next, those before it written."""
        written: dict[int, tuple[int, int]] = {}
        check = self.producers.check
        for header in headers:
            _, _, _, _, _, attributes, last_delta, _, _, producer_id, producer_epoch, sequence, _ = header
            if producer_id < 0:
                continue
            before = written.get(producer_id)
            if before is None:
                try:
                    if check(producer_id, producer_epoch, sequence, last_delta, attributes) is not None:
                        return False
                except ApiError:
                    return False
            elif before != (producer_epoch, sequence):
                return False
            written[producer_id] = producer_epoch, (sequence + last_delta + 1) & SEQUENCE_MAX
        return True

    def _note_producers(self, headers: Sequence[BatchHeader], last_offsets: Sequence[int]) -> None:
        update = self.producers.update
        for header, last_offset in zip(headers, last_offsets, strict=True):
            _, _, _, _, _, attributes, last_delta, _, max_timestamp, producer_id, producer_epoch, sequence, _ = header
            if producer_id >= 0:
                base_offset = last_offset - last_delta
                update(producer_id, producer_epoch, sequence, base_offset, last_delta, max_timestamp, attributes)

    def _append_marker(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """A transaction marker, from the transaction coordinator."""
        marker = producer_replay.read_marker(batch)
        if marker is not None:
            self.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        base_offset = self.log_end_offset
        placed = header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
        self._write_marker(batch, placed, marker, now_ms)
        producer_replay.replay(self.producers, placed, partial(bytes, batch))
        return Appended(base_offset, placed.last_offset, NO_TIMESTAMP, False)

    def retention_candidates(self, now_ms: int, high_watermark: int | None = None) -> list[Segment]:
        """The oldest segments that need not be kept any longer. If that is all of them, a new one is begun first.

        Where there is no space for it the last one stays until the others have made some.
        """
        with storage_errors(self.directory):
            expired = expired_segments(
                self.segments,
                self._config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.log_end_offset if high_watermark is None else high_watermark,
                now_ms=now_ms,
            )
        candidates = self.segments[: expired.below_start + expired.by_size + expired.by_time]
        if expired.needs_roll:
            try:
                self.roll(now_ms)
            except OutOfSpaceError:
                candidates = candidates[:-1]
                if not candidates:
                    raise
        return candidates

    def start_after_retention(self, now_ms: int, high_watermark: int) -> int | None:
        """Where the log begins when what need not be kept is gone; None if nothing goes."""
        candidates = self.retention_candidates(now_ms, high_watermark)
        return max(self.segments[len(candidates)].base_offset, self.log_start_offset) if candidates else None


def _settle_topic_id(disk: Disk, directory: str, topic_id: UUID | None) -> UUID | None:
    """The topic id in the directory; written there if it has none. Not synced."""
    path = f"{directory}/{names.PARTITION_METADATA}"
    try:
        stored = checkpoints.read_topic_id(disk, path)
    except checkpoints.CorruptCheckpointError as error:
        raise CorruptLogError(str(error)) from error
    if stored is None and topic_id is not None:
        disk.open(path, create=True).pwrite(checkpoints.encode_topic_id(topic_id), 0)
    elif stored is not None and topic_id is not None and stored != topic_id:
        raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{directory} belongs to topic id {stored}, not {topic_id}")
    return stored if stored is not None else topic_id
