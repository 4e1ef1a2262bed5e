"""Walking the batches of a file by their headers.

A batch says how long it is, so the next one is found without looking inside. `walk` trusts nothing: it raises
`TornBatchError` at the first place that cannot be a batch, and whoever walks decides what that means: the end of what a
crash left behind, corruption, or an index that points wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.log.disk import File
from ottla.model.errors import OttlaError
from ottla.wire.batch import CRC_START, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, read_header
from ottla.wire.crc import crc32c

HEADER_WINDOW_BYTES: Final = 4096
"""What is read at a time to look at headers alone: many small batches, or little of a big one."""
CRC_WINDOW_BYTES: Final = 1 << 20

_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES


class TornBatchError(OttlaError):
    """The bytes from `position` on are no batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"no record batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


def walk(
    file: File, position: int, end: int, *, next_offset: int = 0, check_crc: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in `[position, end)`; offsets rise from `next_offset` on."""
    window_bytes = CRC_WINDOW_BYTES if check_crc else HEADER_WINDOW_BYTES
    window = memoryview(b"")
    start = position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(window):
            window, start, at = memoryview(file.pread(min(window_bytes, end - position), position)), position, 0
            if len(window) < HEADER_BYTES:
                raise TornBatchError(position, f"{len(window)} bytes are left, a header has {HEADER_BYTES}")
        header = read_header(window, at)
        base_offset, length, _, magic, crc, _, last_offset_delta, *_ = header
        size = LENGTH_PREFIX_BYTES + length
        if (
            magic != MAGIC
            or length < _LENGTH_MIN
            or size > end - position
            or last_offset_delta < 0
            or base_offset < next_offset
        ):
            raise TornBatchError(position, _why_torn(header, end - position, next_offset))
        if check_crc:
            if at + size > len(window) and size <= window_bytes:
                window, start, at = memoryview(file.pread(min(window_bytes, end - position), position)), position, 0
            if _crc(file, window[at : at + size], position, size) != crc:
                raise TornBatchError(position, f"it does not match its CRC-32C {crc:#010x}")
        yield position, header
        next_offset = base_offset + last_offset_delta + 1
        position += size


def _why_torn(header: BatchHeader, bytes_left: int, next_offset: int) -> str:
    if not any(header):
        return "zeros"
    if header.magic != MAGIC or header.length < _LENGTH_MIN or header.last_offset_delta < 0:
        return f"magic {header.magic}, length {header.length}"
    if header.size > bytes_left:
        return f"it has {header.size} bytes, but {bytes_left} are left"
    return f"offset {header.base_offset} where {next_offset} or more must come"


def _crc(file: File, batch: memoryview, position: int, size: int) -> int:
    """The checksum of a batch, of which `batch` may hold the beginning only: a big one is read piece by piece."""
    crc = crc32c(batch[CRC_START:])
    done = len(batch)
    while done < size:
        piece = file.pread(min(CRC_WINDOW_BYTES, size - done), position + done)
        if not piece:
            raise TornBatchError(position, f"the file ends inside of it, after {done} of {size} bytes")
        crc = crc32c(piece, crc)
        done += len(piece)
    return crc
