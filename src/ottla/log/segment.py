"""One segment: a file of batches with two sparse indexes.

Theory of operation. A segment is appended to while it is the last of its log, then sealed, later dropped or replaced.
It knows how many good bytes it has (`size`); what the file may hold beyond is the rest of a failed write, or room (see
`room`), and is written over.

What an editor must keep true:
- `size` grows only after the bytes are in the file, so a thread that reads up to `size` reads whole batches.
- The `tail` and everything that writes belong to the loop. Reading (`locate`, `batch_at`, the timestamps) is for any
  thread. A segment that is dropped meanwhile raises FileNotFoundError there, and the reader looks for another one.
- Indexes are hints. A lookup checks where it landed, and an index that points wrong is made anew from the batches; only
  batches that cannot be read are corruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.log import names
from ottla.log.disk import Bytes, File
from ottla.log.handles import FileHandle, OpenFiles
from ottla.log.index import CorruptIndexError, TimeIndex
from ottla.log.room import fill_from, reserve_from, write_with_room
from ottla.log.scan import TornBatchError, walk
from ottla.log.segment_indexes import REBUILDING, RELATIVE_OFFSET_MAX, SegmentIndexes
from ottla.log.segment_tail import TAIL_BATCHES_MAX, Tail
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex, encode
from ottla.model.errors import CorruptLogError
from ottla.model.ids import NO_TIMESTAMP
from ottla.wire.batch import LENGTH_PREFIX_BYTES, BatchHeader, read_header

INDEX_INTERVAL_BYTES_DEFAULT: Final = 4096
ASK_BEFORE_APPEND: Final = -2
"""A `roll_timestamp` that every batch is younger than."""


class Located(NamedTuple):
    """A batch in its segment's file."""

    position: int
    header: BatchHeader


class Segment:
    """A run of batches from `base_offset` on, in one file."""

    __slots__ = (
        "_files",
        "_first_timestamp",
        "_indexes",
        "_max_timestamp",
        "_synced_version",
        "_version",
        "base_offset",
        "created_ms",
        "directory",
        "fill_at",
        "fill_bytes",
        "index_entries_max",
        "index_interval_bytes",
        "last_offset_max",
        "log",
        "reserved_bytes",
        "roll_timestamp",
        "sealed",
        "size",
        "suffix",
        "tail",
        "transactions",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        files: OpenFiles,
        *,
        size: int = 0,
        suffix: str = "",
        created_ms: int = 0,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.size = size
        self.created_ms = created_ms
        self.reserved_bytes = 0
        """Room that is taken for the log's file until it is sealed."""
        self.fill_bytes = files.disk.fill_bytes
        self.fill_at = fill_from(size, self.fill_bytes)
        """A write that ends beyond gets room behind it; if there is room, where it ends."""
        self.sealed = False
        """Never appended to again."""
        self._version = 0
        """Counts truncations."""
        self._synced_version = -1
        self.tail: Tail | None = None
        self.transactions: TransactionIndex | None = None
        """None as long as there is no file: no transaction was ever aborted here."""
        self.index_interval_bytes = INDEX_INTERVAL_BYTES_DEFAULT
        self.roll_timestamp = ASK_BEFORE_APPEND
        """A younger batch may have to go to a new segment. PartitionLog sets it."""
        self.index_entries_max = RELATIVE_OFFSET_MAX
        self.last_offset_max = base_offset + RELATIVE_OFFSET_MAX
        """A batch that ends beyond goes to a new segment: its offset would not fit the index, or the index is full."""
        self.log: FileHandle = files.handle(self.path_of(names.LOG))
        self._files = files
        self._indexes: SegmentIndexes | None = None
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None

    def __repr__(self) -> str:
        return f"Segment({self.log.path!r}, size={self.size})"

    def path_of(self, kind: str) -> str:
        return names.segment_path(self.directory, self.base_offset, kind, self.suffix)

    @property
    def path(self) -> str:
        """The file of batches."""
        return self.log.path

    @property
    def synced(self) -> bool:
        """Sealed, and every file of it is on the medium. A sync that began before a truncation does not count."""
        return self._synced_version == self._version

    @synced.setter
    def synced(self, synced: bool) -> None:
        self._synced_version = self._version if synced else -1

    @property
    def has_room(self) -> bool:
        """Whether there may be zeros or blocks behind the end of the log, which is written to."""
        size, fill_bytes = self.size, self.fill_bytes
        return not self.sealed and (self.fill_at > fill_from(size, fill_bytes) or size >= reserve_from(fill_bytes))

    # -- writing: the last segment, on the loop

    def set_index_config(self, interval_bytes: int, index_bytes_max: int) -> None:
        """`index.interval.bytes` and `segment.index.bytes`; one time index entry is kept for when it is sealed."""
        self.index_interval_bytes = interval_bytes
        self.index_entries_max = max(1, index_bytes_max // TimeIndex.ENTRY.size - 1)
        if self._indexes is not None:
            self._indexes.interval_bytes = interval_bytes

    def create(self) -> None:
        """Make the three files, empty. Nothing is synced."""
        self.log.create()
        if self.reserved_bytes:
            self.log.get().reserve(0, self.reserved_bytes)
        self._indexes = self._new_indexes(self.suffix)
        self._indexes.create()

    def append(self, batch: Bytes, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end. An OSError leaves the segment as it was, but for bytes beyond `size`."""
        position, log = self.size, self.log
        end = position + size
        log.used = True
        file = log.file or log.get()
        if end > self.fill_at:
            self._write_with_room(file, (batch,), position, end)
        else:
            file.pwrite(batch, position)
        self.size = end
        tail = self.tail
        if tail is None:
            tail = self.tail = Tail(base_offset)
        tail.last_offsets.append(last_offset)
        tail.positions.append(position)
        if len(tail.positions) > TAIL_BATCHES_MAX:
            tail.trim()
        indexes = self._indexes or self.indexes
        if max_timestamp <= indexes.max_timestamp and indexes.bytes_since_entry <= indexes.interval_bytes:
            indexes.bytes_since_entry += size  # What `note` would do.
        elif (
            indexes.note(last_offset, max_timestamp, position, size) and indexes.offsets.count >= self.index_entries_max
        ):
            self.last_offset_max = -1

    def append_run(
        self,
        batches: Bytes | list[memoryview],
        headers: Sequence[BatchHeader],
        base_offset: int,
        last_offsets: Sequence[int],
    ) -> None:
        """Write some batches at the end, in one piece. An OSError leaves the segment as `append` would.

        Their offsets are not read from the headers.
        """
        position, log = self.size, self.log
        log.used = True
        file = log.file or log.get()
        pieces = batches if isinstance(batches, list) else [batches]
        end = position + sum(map(len, pieces))
        if end > self.fill_at:
            self._write_with_room(file, pieces, position, end)
        elif len(pieces) > 1:
            file.pwritev(pieces, position)
        else:
            file.pwrite(pieces[0], position)
        tail = self.tail
        if tail is None:
            tail = self.tail = Tail(base_offset)
        tail.last_offsets.extend(last_offsets)
        positions = tail.positions
        indexes = self._indexes or self.indexes
        for (_, length, _, _, _, _, _, _, max_timestamp, _, _, _, _), last_offset in zip(
            headers, last_offsets, strict=True
        ):
            size = LENGTH_PREFIX_BYTES + length
            positions.append(position)
            if max_timestamp <= indexes.max_timestamp and indexes.bytes_since_entry <= indexes.interval_bytes:
                indexes.bytes_since_entry += size  # What `note` would do.
            else:
                indexes.note(last_offset, max_timestamp, position, size)
            position += size
        self.size = position
        while len(positions) > TAIL_BATCHES_MAX:
            tail.trim()
        if indexes.offsets.count >= self.index_entries_max:
            self.last_offset_max = -1

    def _write_with_room(self, file: File, pieces: Sequence[Bytes], position: int, end: int) -> None:
        self.fill_at = write_with_room(file, pieces, position, end, self.fill_bytes)
        self._files.rooms.note(self)

    def index_aborted(self, transaction: AbortedTransaction) -> None:
        """Write the index entry of an abort marker that is about to be appended. An OSError leaves no entry."""
        if self.transactions is None:
            transactions = self._new_transactions()
            transactions.create()
            self.transactions = transactions
        self.transactions.append(transaction)

    def unindex_aborted(self, marker_offset: int) -> None:
        """The marker at this offset could not be written: take back its entry, and what a failed write left."""
        if self.transactions is not None:
            self.transactions.truncate_to(marker_offset)
            self.transactions.cut_back()

    def seal(self) -> None:
        """Write what the indexes hold in memory. The segment may still be appended to if sealing it came to nothing."""
        if self._indexes is not None:
            self._indexes.write()
        if self.reserved_bytes or self.has_room:
            self.cut_back()

    def rest(self) -> None:
        """Let go of everything that can be loaded again; the segment is sealed."""
        self._max_timestamp = self.max_timestamp
        self.tail = self._indexes = None

    def cut_back(self) -> None:
        """Take away what a failed write left beyond `size`, and what was reserved or filled."""
        self.log.get().truncate(self.size)
        self.fill_at = fill_from(self.size, self.fill_bytes)

    def give_back_room(self) -> None:
        """Cut off the room, if the file is open: by its name another log may be found, this one being deleted."""
        if self.log.file is not None:
            self.cut_back()

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset`, and all that follow."""
        self.tail = None
        self._version += 1
        located = self.locate(offset)
        if located is not None:
            self.size = located.position
            self.cut_back()
            self._first_timestamp = self._max_timestamp = None
            self.indexes.truncate_below(offset)
            if self.indexes.offsets.count < self.index_entries_max:
                self.last_offset_max = self.base_offset + RELATIVE_OFFSET_MAX
            if self.transactions is not None:
                self.transactions.truncate_to(offset)
            self.load_tail()

    # -- reading: any thread

    @property
    def indexes(self) -> SegmentIndexes:
        """Both indexes, loaded when they are asked for first."""
        indexes = self._indexes
        if indexes is None:
            indexes = self._new_indexes(self.suffix)
            try:
                indexes.load()
            except (CorruptIndexError, FileNotFoundError):
                if not self.sealed:
                    raise
                indexes = self._scanned_in_memory()
            self._indexes = indexes
        return indexes

    def load_indexes(self) -> None:
        """Load them now, for whoever must not do it later."""
        self._indexes = self.indexes

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a record, -1 if none has one."""
        if self._indexes is not None:
            return self._indexes.max_timestamp
        if self._max_timestamp is None:
            self._max_timestamp = self._read_max_timestamp()
        return self._max_timestamp

    def _read_max_timestamp(self) -> int:
        times = TimeIndex(self._files.handle(self.path_of(names.TIME_INDEX)))
        try:
            times.load()
        except (CorruptIndexError, FileNotFoundError):
            return self.indexes.max_timestamp
        times.handle.forget()
        return times.last_key

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, by which segments are rolled; -1 if there is none."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            self._first_timestamp = self._read_first_header().max_timestamp
        return self._first_timestamp

    def _read_first_header(self) -> BatchHeader:
        try:
            for _, header in walk(self.log.get(), 0, self.size):
                return header
        except TornBatchError as error:
            raise CorruptLogError(f"{self.path}: {error}") from error
        raise CorruptLogError(f"{self.path} lost its first batch")

    @property
    def age_timestamp(self) -> int:
        """What retention by time goes by: the youngest record, or the file's own time if records have none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._files.disk.modified_ms(self.path)

    def batch_at(self, located: Located) -> bytes:
        """The whole batch."""
        batch = self.log.get().pread(located.header.size, located.position)
        if len(batch) != located.header.size or read_header(batch) != located.header:
            raise CorruptLogError(f"{self.path} changed under a reader at byte {located.position}")
        return batch

    def locate(self, offset: int) -> Located | None:
        """The first batch that reaches `offset` or lies beyond it; None if the segment ends before."""
        return self.find(offset, lambda header: header.base_offset + header.last_offset_delta >= offset)

    def find(self, offset: int, wanted: Callable[[BatchHeader], bool]) -> Located | None:
        """The first batch that is wanted, from the last index entry at or before `offset` on."""
        entry = self._look_up(lambda indexes: indexes.offsets.floor(offset - self.base_offset))
        if entry is not None:
            try:
                return self._walk_from(entry, wanted)
            except TornBatchError:
                # The index points wrong, or the batches are bad: a walk from the beginning tells.
                if self.sealed:
                    self._indexes = self._scanned_in_memory()
        try:
            return self._walk_from((-1, 0), wanted)
        except TornBatchError as error:
            raise CorruptLogError(f"{self.path}: {error}") from error

    def offset_before(self, timestamp: int) -> int:
        """An offset before which no record is younger than `timestamp`, as far as the time index knows."""
        _, relative_offset = self._look_up(lambda indexes: indexes.times.floor(timestamp)) or (0, 0)
        return self.base_offset + relative_offset

    def _look_up(self, look: Callable[[SegmentIndexes], tuple[int, int] | None]) -> tuple[int, int] | None:
        try:
            return look(self.indexes)
        except FileNotFoundError:
            if not self.sealed:
                raise
            self._indexes = self._scanned_in_memory()
            return look(self._indexes)

    def _walk_from(self, entry: tuple[int, int], wanted: Callable[[BatchHeader], bool]) -> Located | None:
        key, start = entry
        for position, header in walk(self.log.get(), start, self.size, next_offset=self.base_offset):
            if position == start and key >= 0 and header.last_offset != self.base_offset + key:
                raise TornBatchError(position, f"the index expects offset {self.base_offset + key} here")
            if wanted(header):
                return Located(position, header)
        return None

    def _scanned_in_memory(self) -> SegmentIndexes:
        """Indexes for a sealed segment whose index files are wrong. Threads come here, so no file is written."""
        indexes = self._new_indexes(self.suffix)
        indexes.keep_in_memory()
        indexes.scan(self.log.get(), self.size, check_crc=False, on_batch=None)
        indexes.write()
        return indexes

    # -- loading and repair

    def load_tail(self) -> int:
        """Look at the batches after the last index entry; returns the offset after the last. TornBatchError if torn.

        Reads no more than the index leaves open, so a log that was closed properly opens at once.
        """
        if not self.size:
            return self.base_offset
        return self.indexes.load_tail(self.log.get(), self.size)

    def rebuild(
        self, *, check_crc: bool, sync: bool = False, on_batch: Callable[[int, BatchHeader], None] | None = None
    ) -> tuple[int, TornBatchError | None]:
        """Walk all batches and make the indexes anew; returns the offset after the good ones and why there are no more.

        For recovery, when nobody else looks. `size` is set to what is good; the file of batches is not touched. The new
        indexes replace the old ones when they are complete; with `sync`, when they are on the medium.
        """
        indexes = self._new_indexes(self.suffix + REBUILDING)
        indexes.create()
        good, next_offset, torn = indexes.scan(self.log.get(), self.size, check_crc=check_crc, on_batch=on_batch)
        indexes.write()
        if sync:
            indexes.sync()
        if self._indexes is not None:
            self._indexes.forget()
        indexes.rename(self.directory, self.suffix)
        self.size = good
        self.synced = False
        self._indexes = indexes
        return next_offset, torn

    def _new_indexes(self, suffix: str) -> SegmentIndexes:
        return SegmentIndexes(self.directory, self.base_offset, suffix, self._files, self.index_interval_bytes)

    def note_transactions(self) -> None:
        """There is a transaction index; somebody will load it or replace it."""
        self.transactions = self._new_transactions()

    def load_transactions(self) -> None:
        """Take the transaction index that is there. CorruptIndexError if it cannot be right."""
        self.transactions = self._new_transactions()
        self.transactions.load(self.base_offset)

    def replace_transactions(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Put another transaction index in place, whole and on the medium; for recovery, when nobody else looks."""
        disk, path = self._files.disk, self.path_of(names.TRANSACTION_INDEX)
        data = encode(aborted)
        if self.transactions is not None:
            self.transactions.handle.forget()
        if not data:
            disk.remove(path)
            self.transactions = None
            return
        if self.transactions is None or disk.read(path) != data:
            disk.write_atomically(path, data)
        self.load_transactions()

    def _new_transactions(self) -> TransactionIndex:
        return TransactionIndex(self._files.handle(self.path_of(names.TRANSACTION_INDEX)))

    # -- leaving, and taking another's place

    def rename(self, suffix: str) -> None:
        """Move all files of the segment to another suffix, the batches first."""
        self.log.rename(names.segment_path(self.directory, self.base_offset, names.LOG, suffix))
        (self._indexes or self._new_indexes(self.suffix)).rename(self.directory, suffix)
        if self.transactions is not None:
            path = names.segment_path(self.directory, self.base_offset, names.TRANSACTION_INDEX, suffix)
            self.transactions.handle.rename(path)
        self.suffix = suffix

    def forget(self) -> None:
        """Let go of the open files; slices that are under way stay good."""
        self.log.forget()
        if self._indexes is not None:
            self._indexes.forget()
        if self.transactions is not None:
            self.transactions.handle.forget()

    def sync(self) -> None:
        """Bring all files of a sealed segment to the medium. Blocks; any thread."""
        version = self._version
        self.sync_batches()
        (self._indexes or self._new_indexes(self.suffix)).sync()
        self._synced_version = version

    def sync_batches(self) -> None:
        """Bring the batches to the medium, and which of them were aborted. Blocks; any thread."""
        if self.transactions is not None:
            self.transactions.sync()
        self.log.get().sync()

    def remove_files(self) -> None:
        """Remove the files of a dropped segment. Blocks; any thread."""
        self.forget()
        for kind in names.SEGMENT_KINDS:
            self._files.disk.remove(self.path_of(kind))
