"""Bringing a coordinator back: its partition's log is replayed into a fresh shard.

Theory of operation. The log is read in slices, in a thread; between two slices the loop may stop the load, or give the
thread to others. The shard is nobody else's until the load is over, and the segments of a log may be read from any
thread, so nothing is shared. There are no snapshots: what keeps this short is compaction.

Most records say all there is to say under their key: an offset replaces the one before it. Where there is a quick way
for these, all records outside of transactions are offered to it first. Where there is none, of those that follow one
another directly, `replaceable` ones, only the last one of each key is decoded and replayed, as if the others had been
compacted away.

What does not check out (a batch with a wrong checksum, a record that nobody knows, one on which the shard fails) is
passed over and counted: one damaged record must not cost all groups of a partition their offsets.

What an editor must keep true:
- A load is over when, on the loop, `next_offset` has reached the end of the log: markers may be appended meanwhile.
- Compaction may replace segments under the reader. It keeps the last record of each key, so going on at an offset in
  the new segments gives the same state in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

import structlog

from ottla.core.coordination import Shard
from ottla.log.failures import storage_errors
from ottla.log.producer_replay import read_marker
from ottla.log.reading import read_slice
from ottla.log.scan import TornBatchError
from ottla.model.errors import ApiError, CorruptLogError, OttlaError
from ottla.wire.batch import read_header
from ottla.wire.record_entries import Entry, batches_of_entries, key_of

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

RecordT = TypeVar("RecordT")
Decode: TypeAlias = Callable[[bytes, bytes | None], RecordT | None]
"""A record from its key and value; None if it is none that this version knows."""

READ_TRIES_MAX: Final = 8

log = structlog.get_logger("ottla.coordinators")


class QuickReplay(Protocol):
    """A way around the shard for records of one kind, whose state it knows."""

    def replay(self, entries: Sequence[Entry], start: int) -> int:
        """Replay records outside of transactions, in their order, from `start` on.

        Returns where it came to one that must take the ordinary way; their number if there is none.
        """

    def forget(self) -> None:
        """Something else is replayed next: believe nothing of what was remembered."""


class ShardLoading(Generic[RecordT]):
    """One load, from the first record to the last."""

    __slots__ = (
        "_buffer_bytes",
        "_decode",
        "_latest",
        "_log",
        "_quick",
        "_replaceable",
        "_shard",
        "faults",
        "next_offset",
        "records",
        "skipped",
    )

    def __init__(
        self,
        shard: Shard[RecordT],
        partition_log: PartitionLog,
        decode: Decode[RecordT],
        buffer_bytes: int,
        replaceable: bytes | None = None,
        quick: QuickReplay | None = None,
    ) -> None:
        self._shard = shard
        self._log = partition_log
        self._decode = decode
        self._buffer_bytes = buffer_bytes
        self._replaceable = replaceable
        """What the keys begin with of whose records outside of transactions only the last one counts."""
        self._quick = quick
        self._latest: dict[bytes, bytes | None] = {}
        self.next_offset = partition_log.log_start_offset
        self.records = 0
        """Records that were read, skipped ones included."""
        self.skipped = 0
        """Records that nobody knows, and batches that do not check out."""
        self.faults = 0
        """Records on which the shard failed."""

    @property
    def is_over(self) -> bool:
        """On the loop: whether the shard has seen everything."""
        return self.next_offset >= self._log.log_end_offset

    def replay_slice(self) -> None:
        """Replay the next slice. runs in a thread

        StorageError or CorruptLogError: the log cannot be read any further.
        """
        data = self._read()
        before = self.next_offset
        try:
            for start, end, last_offset, producer_id, is_control, entries in batches_of_entries(data, before):
                if entries is None:
                    self._replay_latest()
                    self._replay_other(data[start:end], is_control=is_control)
                elif producer_id >= 0:
                    self._replay_latest()
                    self._replay(entries, producer_id)
                elif self._quick is not None:
                    self._replay_quickly(self._quick, entries)
                else:
                    self._gather(entries)
                self.next_offset = last_offset + 1
        except ApiError as error:
            raise CorruptLogError(f"{self._log.tp}, after offset {self.next_offset}: {error.message}") from error
        self._replay_latest()
        if self.next_offset == before:
            if data:
                raise CorruptLogError(f"{self._log.tp}: no whole batch holds offset {before}")
            # All that is left was compacted away.
            self.next_offset = max(before, self._log.log_end_offset)

    def _read(self) -> bytes:
        end_offset = self._log.log_end_offset
        for _ in range(READ_TRIES_MAX):
            segments = self._log.segments
            try:
                with storage_errors(self._log.directory):
                    found = read_slice(segments, end_offset, self.next_offset, self._buffer_bytes, end_offset, True)
                    return b"" if found is None else found.file.pread(found.length, found.position)
            except TornBatchError as error:
                raise CorruptLogError(f"{self._log.tp}: {error}") from error
            except OttlaError:
                if segments is self._log.segments:
                    raise
        raise CorruptLogError(f"{self._log.tp}: its segments change faster than they can be read")

    def _replay_quickly(self, quick: QuickReplay, entries: list[Entry]) -> None:
        self.records += len(entries)
        done = quick.replay(entries, 0)
        while done < len(entries):
            self._replay(entries[done : done + 1], -1)
            done = quick.replay(entries, done + 1)

    def _gather(self, entries: list[Entry]) -> None:
        """Put records aside of which only the last one of each key counts; replay the others in their place."""
        latest, prefix = self._latest, self._replaceable
        self.records += len(entries)
        for start, number, value in entries:
            key = key_of(start, number)
            if key is not None and prefix is not None and key.startswith(prefix):
                latest[key] = value
            else:
                self._replay_latest()
                self._replay([(start, number, value)], -1)

    def _replay_latest(self) -> None:
        if not self._latest:
            return
        entries: list[Entry] = [(key, None, value) for key, value in self._latest.items()]
        self._latest.clear()
        self._replay(entries, -1)

    def _replay_other(self, batch: bytes, *, is_control: bool) -> None:
        """A marker, or a batch that does not check out."""
        if not is_control:
            self.skipped += 1
            return
        try:
            marker = read_marker(batch)
        except (ApiError, CorruptLogError):
            self.skipped += 1
            return
        if marker is not None:
            if self._quick is not None:
                self._quick.forget()
            try:
                self._shard.replay_marker(read_header(batch).producer_id, committed=not marker.aborts)
            except Exception as error:
                self._note_fault(error)

    def _replay(self, entries: list[Entry], producer_id: int) -> None:
        if self._quick is not None:
            self._quick.forget()
        decode, replay, done = self._decode, self._shard.replay, 0
        while done < len(entries):
            try:
                for start, number, value in entries[done:] if done else entries:
                    done += 1
                    key = key_of(start, number)
                    record = None if key is None else decode(key, value)
                    if record is None:
                        self.skipped += 1
                    else:
                        replay(record, producer_id)
            except Exception as error:
                self._note_fault(error)

    def _note_fault(self, error: Exception) -> None:
        """The first fault goes to the log with its traceback, the others are counted."""
        self.faults += 1
        if self.faults == 1:
            log.error("a coordinator failed on a record of its log", partition=str(self._log.tp), exc_info=error)
