"""Where a reader goes on that reads a log from batch to batch.

Theory of operation. A read may end inside a batch, and the next one mostly begins with that batch. Where the bytes of a
read are in memory on their way to a client, the header of that batch is among them: whoever has them there shows them
(`FileSlice.shown`), and so the next read needs neither the index nor the file to find its place.

What an editor must keep true: a place is good for the list of segments that it was found in, which is replaced with
every cut, roll, deletion and compaction, and for offsets of that one batch. What looks odd is left to `read`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.wire.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, read_header

if TYPE_CHECKING:
    from ottla.log.segment import Segment
    from ottla.model.chunks import FileSlice

BATCHES_MAX: Final = 8
"""So many steps from header to header cost less than the index and the file; for shorter batches those are asked."""

_length_at: Final = Struct(">8xi").unpack_from


class ReadingPlace:
    """The batch at which a reader is expected, and the read that may show the next one."""

    __slots__ = ("first_offset", "last_offset", "position", "read_position", "segment", "segments", "size")

    def __init__(self) -> None:
        self.first_offset = 0
        self.last_offset = -1
        """Below the first one if no batch is known."""
        self.position = self.size = 0
        self.read_position = 0
        """Where the last read began."""
        self.segment: Segment | None = None
        """The one that was read last, of these:"""
        self.segments: Sequence[Segment] = ()

    def show(self, records: FileSlice, data: memoryview) -> None:
        """Look for the batch in which `data`, the bytes of a read, ends."""
        segment = self.segment
        if segment is None or records.position != self.read_position or records.file is not segment.log.file:
            return  # There was another read since.
        end, at = len(data), 0
        size = LENGTH_PREFIX_BYTES + _length_at(data)[0]
        if size * BATCHES_MAX < end:
            return
        for _ in range(BATCHES_MAX):
            at += size
            if size <= HEADER_BYTES or at + HEADER_BYTES > end:
                return
            size = LENGTH_PREFIX_BYTES + _length_at(data, at)[0]
            if at + size > end:
                break
        else:
            return
        base_offset, _, _, magic, _, _, last_delta, *_ = read_header(data, at)
        position = records.position + at
        if magic == MAGIC and last_delta >= 0 and position + size <= segment.size:
            self.first_offset, self.last_offset = base_offset, base_offset + last_delta
            self.position, self.size = position, size
