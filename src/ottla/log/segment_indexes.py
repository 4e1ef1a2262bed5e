"""Both indexes of a segment, and what decides when they get an entry.

The same few lines (`note`) run when a batch is appended and when an index is made anew from the batches, so that a
rebuilt index is the index that was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.log import names
from ottla.log.disk import File
from ottla.log.handles import OpenFiles
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.scan import TornBatchError, walk
from ottla.model.ids import NO_TIMESTAMP
from ottla.wire.batch import LENGTH_PREFIX_BYTES, BatchHeader

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
REBUILDING: Final = ".tmp"


class SegmentIndexes:
    """An offset index and a time index that grow together."""

    __slots__ = (
        "base_offset",
        "bytes_since_entry",
        "interval_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def __init__(self, directory: str, base_offset: int, suffix: str, files: OpenFiles, interval_bytes: int) -> None:
        def path(kind: str) -> str:
            return names.segment_path(directory, base_offset, kind, suffix)

        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        """The last offset of the first batch that has the largest timestamp."""
        self.offsets = OffsetIndex(files.handle(path(names.OFFSET_INDEX)))
        self.times = TimeIndex(files.handle(path(names.TIME_INDEX)))

    def create(self) -> None:
        """Two empty files."""
        self.offsets.create()
        self.times.create()

    def keep_in_memory(self) -> None:
        """Never touch the files."""
        self.offsets.keep_in_memory()
        self.times.keep_in_memory()

    @property
    def are_in_memory(self) -> bool:
        """They stand in for files that cannot be used."""
        return self.offsets.is_in_memory

    def load(self) -> None:
        """Take the files as they are; CorruptIndexError or FileNotFoundError if they are not usable."""
        self.offsets.load()
        self.times.load()
        if self.times.count:
            self.max_timestamp = self.times.last_key
            self.max_timestamp_offset = self.base_offset + self.times.last_value

    def note(self, last_offset: int, max_timestamp: int, position: int, size: int) -> bool:
        """A batch is in the file at `position`: remember its timestamp; True if it was time for an entry."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry <= self.interval_bytes:
            self.bytes_since_entry += size
            return False
        self.bytes_since_entry = size
        self.offsets.append(last_offset - self.base_offset, position)
        self.times.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return True

    def write(self) -> None:
        """Put everything into the files, with the largest timestamp as the last entry. Not synced.

        May be called at any time, and batches may be noted afterwards.
        """
        self.times.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.offsets.write_pending()
        self.times.write_pending()

    def truncate_below(self, offset: int) -> None:
        """Forget entries for `offset` and beyond. The caller then looks at the batches that are left."""
        relative = offset - self.base_offset
        self.offsets.truncate_below(relative)
        kept = sum(1 for _, entry_offset in self.times.entries() if entry_offset < relative)
        self.times.truncate_entries(kept)
        self.max_timestamp = self.times.last_key
        self.max_timestamp_offset = self.base_offset + self.times.last_value
        self.bytes_since_entry = 0  # If no batch is left nobody looks, and the next one is the first: it has no entry.

    def load_tail(self, file: File, size: int) -> int:
        """Walk the batches after the last entry; returns the offset after the last one. TornBatchError if torn."""
        indexed = self.offsets.last_value
        next_offset = self.base_offset
        for position, header in walk(file, indexed, size, next_offset=self.base_offset):
            last_offset = header.last_offset
            if position == indexed and self.offsets.count and last_offset != self.base_offset + self.offsets.last_key:
                raise TornBatchError(position, f"the index expects offset {self.base_offset + self.offsets.last_key}")
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, last_offset
            next_offset = last_offset + 1
        self.bytes_since_entry = size - indexed
        return next_offset

    def is_complete(self, file: File, size: int) -> bool:
        """Whether nothing that belongs into the files of a sealed segment was lost. Looks at the tail of the batches.

        Nor has a crash brought back what a cut had taken. Says no where timestamps go backwards, too; making the
        indexes anew is always right.
        """
        if self.are_in_memory:
            return False
        self.offsets.check_rising()
        self.times.check_rising()
        start, since_entry, largest = self.offsets.last_value, 0, self.times.last_key
        has_place, has_time = not size, not self.times.count
        for position, header in walk(file, start, size, next_offset=self.base_offset):
            if since_entry > self.interval_bytes and position != start:
                return False
            relative = header.last_offset - self.base_offset
            has_place = has_place or not start or relative == self.offsets.last_key
            has_time = has_time or (relative, header.max_timestamp) == (self.times.last_value, self.times.last_key)
            since_entry += header.size
            largest = max(largest, header.max_timestamp)
        return has_place and has_time and largest == self.times.last_key

    def scan(
        self, file: File, size: int, *, check_crc: bool, on_batch: Callable[[int, BatchHeader], None] | None
    ) -> tuple[int, int, TornBatchError | None]:
        """Fill empty indexes from the batches. Returns the good bytes, the offset after them, and why no more."""
        good, next_offset = 0, self.base_offset
        offset_max = self.base_offset + RELATIVE_OFFSET_MAX
        try:
            for position, header in walk(file, 0, size, next_offset=self.base_offset, check_crc=check_crc):
                last_offset = header.base_offset + header.last_offset_delta
                if last_offset > offset_max:
                    raise TornBatchError(position, f"offset {last_offset} is too far from {self.base_offset}")
                batch_bytes = LENGTH_PREFIX_BYTES + header.length
                self.note(last_offset, header.max_timestamp, position, batch_bytes)
                if on_batch is not None:
                    on_batch(position, header)
                good, next_offset = position + batch_bytes, last_offset + 1
        except TornBatchError as torn:
            return good, next_offset, torn
        return good, next_offset, None

    def sync(self) -> None:
        """Bring both files to the medium. Blocks; any thread."""
        self.offsets.handle.get().sync()
        self.times.handle.get().sync()

    def rename(self, directory: str, suffix: str) -> None:
        """Give both files the names of another place or state; files that are missing stay missing."""
        for kind, index in ((names.OFFSET_INDEX, self.offsets), (names.TIME_INDEX, self.times)):
            index.handle.rename(names.segment_path(directory, self.base_offset, kind, suffix))

    def forget(self) -> None:
        """Let go of the open files."""
        self.offsets.handle.forget()
        self.times.handle.forget()
