"""The log of one partition.

Theory of operation. A log is a list of segments; the last one is appended to. A batch comes in checked, gets its
offset and its leader's epoch written into it, and goes to the end of the file in one write. It leaves as a
`FileSlice`: the bytes go from the file to the socket and never enter Python.

Threads. A log belongs to the loop. These may be called from any thread: `sync_until`, `offset_for_timestamp`,
`offset_of_max_timestamp`, `delete_files`. They work on `segments` as it was when they began: the list is replaced,
never changed in place.

What an editor must keep true:
- `append` changes nothing before its write has succeeded; a write that ran out of space is cut back and leaves no
  trace.
- `recovery_point` moves only to an offset for which `sync_until` has returned: files, their names, the leader epochs.
- Sealing writes the indexes and the producer snapshot before the new segment takes over. None of them is synced on the
  loop; `sync_until` does it later, and recovery does without them until then.
- Whoever lowers what is safe (`truncate_to`) stores the lower recovery point first, else a crash looks like corruption.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ottla.log import checkpoints, names, producer_replay, recovery
from ottla.log.disk import Disk
from ottla.log.failures import failed, is_out_of_space, out_of_space, storage_errors
from ottla.log.handles import OpenFiles
from ottla.log.keeping import KeptLog
from ottla.log.producer_replay import Marker
from ottla.log.producer_state import PRODUCER_ID_EXPIRATION_MS_DEFAULT
from ottla.log.reading import segment_index
from ottla.log.recovery import LoadedLog, new_segment
from ottla.log.retention import expired_segments
from ottla.log.rolling import is_old, roll_timestamp
from ottla.log.segment import Segment
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, OttlaError
from ottla.model.ids import NO_TIMESTAMP, TopicPartition
from ottla.wire.batch import (
    CONTROL_BIT,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    assign,
    crc_matches,
    iterate,
    set_log_append_time,
)


class Appended(NamedTuple):
    """Where a batch is in the log."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the broker stamps the records."""
    duplicate: bool
    """The producer has sent it before, and it was written then."""


# What calling the class does, without a Python frame.
_appended: Callable[[tuple[int, int, int, bool]], Appended] = partial(tuple.__new__, Appended)


class PartitionLog(KeptLog):
    """The log of one partition, in one directory."""

    __slots__ = ("_producer_id_expiration_ms", "topic_id")

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
        with storage_errors(directory):
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
        return _appended((base_offset, last_offset, log_append_time_ms, False))

    def append_as_follower(self, batches: memoryview, now_ms: int = 0) -> None:
        """Write batches as a leader wrote them, offsets and epochs kept. One that is cut off at the end is left out."""
        for position, header in iterate(batches):
            batch = batches[position : position + header.size]
            if not crc_matches(batch, header):
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE, f"{self.tp}: batch {header.base_offset} does not match its CRC"
                )
            if header.base_offset < self.log_end_offset:
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.tp}: batch {header.base_offset} cannot follow, the log ends at {self.log_end_offset}",
                )
            if header.is_control and header.producer_id >= 0:
                self._write_marker(batch, header, producer_replay.read_marker(batch), now_ms)
            else:
                self._write(
                    batch,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                    header.partition_leader_epoch,
                    now_ms,
                )
            producer_replay.replay(self.producers, header, partial(bytes, batch))

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
        try:
            assign(batch, 0, base_offset, size - LENGTH_PREFIX_BYTES, leader_epoch)
            segment.append(batch, size, base_offset, last_offset, max_timestamp)
        except OSError as error:
            raise self._not_written(error) from error
        self.log_end_offset = last_offset + 1
        if leader_epoch != self.epochs.latest and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, base_offset)

    def _make_room(self, size: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The segment for a batch that may not fit the active one."""
        self._check_open()
        if size > self._segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {size} bytes, segment.bytes of {self.tp} is {self._segment_bytes}",
            )
        segment = self.active
        if segment.size + size > self._segment_bytes or last_offset > segment.last_offset_max:
            self._roll(base_offset, now_ms)
        elif segment.size:
            segment.roll_timestamp = roll_timestamp(segment, self._config)
            if is_old(segment, self._config, max_timestamp, now_ms):
                self._roll(base_offset, now_ms)
        return self.active

    def _not_written(self, error: OSError) -> OttlaError:
        """What to tell after a failed write, with the file as it was before."""
        if not is_out_of_space(error):
            return failed(self.directory, error)
        try:
            self.active.cut_back()
        except OSError as worse:
            return failed(self.directory, worse)
        return out_of_space(self.directory, error)

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

    def retention_candidates(self, now_ms: int, high_watermark: int | None = None) -> list[Segment]:
        """The oldest segments that need not be kept any longer. If that is all of them, a new one is begun first."""
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
            self.roll(now_ms)
        return candidates

    # -- going back: a follower whose log parted from its leader's

    def truncate_to(self, offset: int, now_ms: int = 0) -> list[Segment]:
        """Cut off the batch that holds `offset` and all after it; returns dropped segments for `delete_files`."""
        if offset >= self.log_end_offset:
            return []
        if offset <= self.segments[0].base_offset:
            return self.truncate_fully_and_start_at(offset, now_ms)
        index = segment_index(self.segments, offset - 1)
        dropped = self.segments[index + 1 :]
        with storage_errors(self.directory):
            self._set_segments(self.segments[: index + 1])
            self._mark_deleted(dropped[::-1])
            self.active.sealed = False
            self.active.truncate_to(offset)
            self.log_end_offset = self.active.load_tail()
            self.config = self._config
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.last_aborted_offset = min(self.last_aborted_offset, self.log_end_offset - 1)
            self.epochs.truncate_from_end(self.log_end_offset)
            self._rebuild_producers(now_ms)
        return dropped

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> list[Segment]:
        """Forget everything and go on at `offset`; returns the dropped segments for `delete_files`."""
        dropped = self.segments
        self._set_segments([new_segment(self.directory, offset, self._config, self._files, now_ms=now_ms)])
        with storage_errors(self.directory):
            self._mark_deleted(dropped[::-1])
            self._snapshots.remove(self._snapshots.offsets)
            self.active.create()
        self.log_start_offset = self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.last_aborted_offset = -1
        self.epochs.clear()
        self.producers.clear()
        return dropped

    def _rebuild_producers(self, now_ms: int) -> None:
        producer_replay.rebuild(
            self.producers,
            self._snapshots,
            self.segments,
            log_start_offset=self.log_start_offset,
            end_offset=self.log_end_offset,
        )
        self.producers.expire(now_ms, self._producer_id_expiration_ms)


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
