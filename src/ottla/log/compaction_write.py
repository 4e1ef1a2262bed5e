"""Writing a cleaned segment: batches as they were or rewritten, with its indexes, synced when it is finished.

A group of one segment that turns out to be clean already is not written at all: nothing is copied until the first batch
that changes, and if none does, there is no new segment.
"""

from __future__ import annotations

from typing import Final

from ottla.log import names
from ottla.log.compaction import CleanedGroup, CompactionError, SegmentSource
from ottla.log.compaction_read import Row
from ottla.log.disk import Disk, File
from ottla.log.handles import OpenFiles
from ottla.log.segment_indexes import SegmentIndexes
from ottla.model.ids import NO_TIMESTAMP
from ottla.wire.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    build,
)
from ottla.wire.compiled.batches import Header

FLUSH_BYTES: Final = 1 << 20
_KEPT_BY_EMPTY: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT

SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""An index has 31 bits for a position."""


def discard_cleaned(disk: Disk, directory: str) -> None:
    """Remove what a round that came to nothing has left.

    A recovery that finds a `.cleaned` file takes every replacement from there on for undecided, so none may lie around
    when the next one is decided.
    """
    for name in disk.listdir(directory):
        parsed = names.parse_segment_name(name)
        if parsed is not None and parsed[2] == names.CLEANED:
            disk.remove(f"{directory}/{name}")


def encode_batch(row: Row, attributes: int, base_timestamp: int, max_timestamp: int, count: int, body: bytes) -> bytes:
    """A batch with new records and the place, the offsets and the producer of an old one."""
    return bytes(
        build(
            body,
            attributes,
            row[Header.LAST_OFFSET_DELTA],
            base_timestamp,
            max_timestamp,
            count,
            base_offset=row[Header.BASE_OFFSET],
            leader_epoch=row[Header.LEADER_EPOCH],
            producer_id=row[Header.PRODUCER_ID],
            producer_epoch=row[Header.PRODUCER_EPOCH],
            base_sequence=row[Header.BASE_SEQUENCE],
        )
    )


def emptied_batch(row: Row) -> bytes:
    """The header of a batch without its records; it keeps the time of the youngest, and has none of its own."""
    return encode_batch(row, row[Header.ATTRIBUTES] & _KEPT_BY_EMPTY, NO_TIMESTAMP, row[Header.MAX_TIMESTAMP], 0, b"")


class CleanedSegment:
    """The `.cleaned` files of one group."""

    __slots__ = ("_directory", "_disk", "_file", "_indexes", "_pieces", "_pieces_bytes", "_sources", "_written", "size")

    def __init__(self, disk: Disk, directory: str, sources: list[SegmentSource], index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._sources = sources
        self._file: File | None = None
        self._pieces: list[bytes | memoryview] = []
        self._pieces_bytes = 0
        self._written = 0
        self.size = 0
        """Of the new segment so far; equal to what was read of a single source as long as nothing has changed."""
        files = OpenFiles(disk)
        self._indexes = SegmentIndexes(directory, self.base_offset, names.CLEANED, files, index_interval_bytes)
        self._indexes.create()
        if len(sources) > 1:
            self.change()

    @property
    def base_offset(self) -> int:
        return self._sources[0].base_offset

    def path_of(self, kind: str) -> str:
        return names.segment_path(self._directory, self.base_offset, kind, names.CLEANED)

    def keep(self, batch: memoryview, last_offset: int, max_timestamp: int) -> None:
        """The next batch stays as it is."""
        self._note(len(batch), last_offset, max_timestamp)
        if self._file is not None:
            self._put(batch)

    def replace(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        """Another batch comes in place of the next one."""
        self.change()
        self._note(len(batch), last_offset, max_timestamp)
        self._put(batch)

    def change(self) -> None:
        """From here on the new segment is not its source: copy what was the same so far."""
        if self._file is not None:
            return
        self._file = self._disk.open(self.path_of(names.LOG), create=True)
        self._file.truncate(0)
        source = self._disk.open(names.segment_path(self._directory, self.base_offset, names.LOG), write=False)
        while self._written < self.size:
            same = source.pread(min(FLUSH_BYTES, self.size - self._written), self._written)
            if not same:
                raise CompactionError(f"{self.path_of(names.LOG)}: the segment it comes from has been cut")
            self._file.pwrite(same, self._written)
            self._written += len(same)

    def flush(self) -> None:
        """Write what was put; the chunk that pieces are part of may go."""
        if self._file is None or not self._pieces:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._file.pwrite(data, self._written)
        self._written += len(data)
        self._pieces, self._pieces_bytes = [], 0

    def finish(self, transactions: bytes) -> CleanedGroup:
        """Complete and sync the files. `transactions` is the transaction index, b"" for none."""
        sources = [source.base_offset for source in self._sources]
        if self._file is None:
            self.discard()
            return CleanedGroup(sources=sources, base_offset=self.base_offset, size=self.size, is_changed=False)
        self.flush()
        self._keep_age()
        self._file.sync()
        self._indexes.write()
        for index in (self._indexes.offsets, self._indexes.times):
            index.handle.get().sync()
        if transactions:
            self._write_transactions(transactions)
        self._disk.sync_dir(self._directory)
        self._indexes.forget()
        return CleanedGroup(sources=sources, base_offset=self.base_offset, size=self.size)

    def _keep_age(self) -> None:
        """Where records have no times their file's own says how old they are, and cleaning makes nothing younger."""
        youngest = names.segment_path(self._directory, self._sources[-1].base_offset, names.LOG)
        self._disk.set_modified_ms(self.path_of(names.LOG), self._disk.modified_ms(youngest))

    def discard(self) -> None:
        """Remove every file of it."""
        self._indexes.forget()
        self._file = None
        for kind in names.SEGMENT_KINDS:
            self._disk.remove(self.path_of(kind))

    def _write_transactions(self, transactions: bytes) -> None:
        file = self._disk.open(self.path_of(names.TRANSACTION_INDEX), create=True)
        file.truncate(0)
        file.pwrite(transactions, 0)
        file.sync()

    def _note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        if self.size + size > SEGMENT_BYTES_MAX:
            raise CompactionError(f"{self.path_of(names.LOG)} would have more than {SEGMENT_BYTES_MAX} bytes")
        self._indexes.note(last_offset, max_timestamp, self.size, size)
        self.size += size

    def _put(self, piece: bytes | memoryview) -> None:
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        if self._pieces_bytes >= FLUSH_BYTES:
            self.flush()
