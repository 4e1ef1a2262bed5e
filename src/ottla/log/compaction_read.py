"""Reading segments for compaction: chunks of whole batches, and their records in columns.

For the record worker only: it imports compiled code.

Every batch that is read is checked against its CRC-32C. Headers come as rows of plain numbers, see
`wire.compiled.batches.Header`; batches with a body that lies come with a fault and without records, see `Span`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ottla.log import names
from ottla.log.compaction import SegmentSource
from ottla.log.disk import Disk, File
from ottla.model.errors import ApiError, CorruptLogError
from ottla.wire.batch import CODEC_MASK, CRC_START, HEADER_BYTES
from ottla.wire.compiled.batches import Header, Policy, ScanEnd, Span, parse_batches, scan_batches
from ottla.wire.compiled.keys import Probe
from ottla.wire.compiled.records import RECORD_BYTES_MIN, Column, explain
from ottla.wire.compression import decompress
from ottla.wire.crc import crc32c

CHUNK_BYTES: Final = 1 << 20
"""What is read at a time, unless one batch is larger: small enough that its columns stay in the processor's cache."""
RUN_BODY_BYTES: Final = 8 << 20
"""Decompressed bodies that are worked on together; one batch may have more."""
BODY_BYTES_MAX: Final = 128 << 20
RECORDS_MAX: Final = 4_000_000
"""A batch that has more of either stays as it is."""

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Row = Sequence[int]


class Chunk:
    """Whole batches, as they lie in a segment from `position` on."""

    __slots__ = ("data", "headers", "position", "rows")

    def __init__(self, data: bytes, position: int, headers: Numbers) -> None:
        self.data = data
        self.position = position
        self.headers = headers
        self.rows: list[list[int]] = headers.tolist()

    def batch(self, row: Row) -> memoryview:
        """The bytes of one batch."""
        start = row[Header.POSITION]
        return memoryview(self.data)[start : start + row[Header.SIZE]]


def read_chunks(disk: Disk, directory: str, source: SegmentSource, end_offset: int) -> Iterator[Chunk]:
    """All batches of a segment, whose offsets lie below `end_offset`.

    CorruptLogError at the first that does not match its checksum, or whose offset is out of order.
    """
    path = names.segment_path(directory, source.base_offset, names.LOG)
    file = disk.open(path, write=False)
    position, wanted, next_offset = 0, CHUNK_BYTES, source.base_offset
    while position < source.size:
        chunk, end, size_missing = _read_chunk(file, path, position, min(wanted, source.size - position))
        if not chunk.rows and size_missing > source.size - position:
            raise CorruptLogError(f"{path}: the batch at byte {position} claims {size_missing} bytes")
        if chunk.rows:
            _check_crcs(chunk, path)
            next_offset = _check_offsets(chunk, path, next_offset, end_offset)
            yield chunk
        position, wanted = position + end, max(CHUNK_BYTES, size_missing)


def _read_chunk(file: File, path: str, position: int, size: int) -> tuple[Chunk, int, int]:
    """Batches from `position` on, where they end in the chunk, and the size of the first that does not fit, or 0."""
    data = file.pread(size, position)
    headers = np.empty((len(data) // HEADER_BYTES, Header.COUNT), np.int64)
    count, end, why, size_missing = scan_batches(np.frombuffer(data, np.uint8), len(data), headers)
    if why == ScanEnd.CORRUPT or (why == ScanEnd.END and count == 0):
        raise CorruptLogError(f"{path}: no record batch at byte {position + end}")
    return Chunk(data, position, headers[:count]), end, size_missing


def _check_crcs(chunk: Chunk, path: str) -> None:
    view = memoryview(chunk.data)
    for row in chunk.rows:
        start = row[Header.POSITION]
        if crc32c(view[start + CRC_START : start + row[Header.SIZE]]) != row[Header.CRC]:
            raise CorruptLogError(f"{path}: the batch at byte {chunk.position + start} does not match its CRC-32C")


def _check_offsets(chunk: Chunk, path: str, next_offset: int, end_offset: int) -> int:
    """Where the chunk ends. No checksum covers an offset, and a wrong one would make an old record the latest."""
    bases = chunk.headers[:, Header.BASE_OFFSET]
    ends = bases + chunk.headers[:, Header.LAST_OFFSET_DELTA] + 1
    is_wrong = (bases < np.concatenate(([next_offset], ends[:-1]))) | (bases >= end_offset) | (ends > end_offset)
    if is_wrong.any():
        row = chunk.rows[int(is_wrong.argmax())]
        at, offset = chunk.position + row[Header.POSITION], row[Header.BASE_OFFSET]
        raise CorruptLogError(f"{path}: offset {offset} of the batch at byte {at} is out of order")
    return int(ends[-1])


class Run:
    """Batches `first` to `last` of a chunk with their records in columns. Good until the parser parses the next run."""

    __slots__ = ("chunk", "columns", "first", "found", "keep", "last", "probes", "rows", "scratch", "spans")

    def __init__(
        self, parser: RecordParser, chunk: Chunk, spans: Numbers, scratch: Bytes, first: int, last: int
    ) -> None:
        self.chunk = chunk
        self.spans = spans
        self.scratch = scratch
        self.first = first
        self.last = last
        self.rows = parse_batches(
            np.frombuffer(chunk.data, np.uint8), scratch, chunk.headers, spans, first, last,
            parser.columns, parser.probes, parser.seed,
        )  # fmt: skip
        self.columns = parser.columns
        self.probes = parser.probes
        self.found = parser.found
        self.keep = parser.keep

    def body(self, span: Row) -> Bytes:
        """The buffer that holds a batch's records, decompressed."""
        return self.scratch if span[Span.IN_SCRATCH] else np.frombuffer(self.chunk.data, np.uint8)


class RecordParser:
    """Turns chunks into runs of parsed records, in memory that is used again."""

    __slots__ = ("columns", "found", "keep", "probes", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed & 0xFFFF_FFFF_FFFF_FFFF
        self._allocate(CHUNK_BYTES // 64)

    def _allocate(self, rows: int) -> None:
        self.columns = np.empty((Column.COUNT, rows), np.int64)
        self.probes = np.empty((Probe.COUNT, rows), np.int64)
        self.found = np.empty(rows, np.int64)
        self.keep = np.empty(rows, np.uint8)

    def runs(self, chunk: Chunk, policies: Numbers, faults: dict[int, str]) -> Iterator[Run]:
        """Parse a chunk; `policies` has one `Policy` per batch.

        `faults` gets a reason for each batch, by its number in the chunk, that could not be parsed; its policy is
        OPAQUE from then on. What is not compressed costs nothing per batch here.
        """
        spans = np.zeros((len(policies), Span.COUNT), np.int64)
        spans[:, Span.START] = chunk.headers[:, Header.POSITION] + HEADER_BYTES
        spans[:, Span.END] = chunk.headers[:, Header.POSITION] + chunk.headers[:, Header.SIZE]
        spans[:, Span.POLICY] = policies
        self._leave_out_the_largest(chunk, spans, faults)
        first, bodies, body_bytes = 0, list[bytes](), 0
        for number in _compressed(chunk, spans):
            body = _decompressed(chunk, number, spans, faults)
            if body_bytes + len(body) > RUN_BODY_BYTES and number > first:
                yield self._run(chunk, spans, bodies, first, number, faults)
                first, bodies, body_bytes = number, [], 0
            if body:
                spans[number, : Span.END + 1] = (1, body_bytes, body_bytes + len(body))
                bodies.append(body)
                body_bytes += len(body)
        yield self._run(chunk, spans, bodies, first, len(policies), faults)

    def _leave_out_the_largest(self, chunk: Chunk, spans: Numbers, faults: dict[int, str]) -> None:
        is_too_large = (chunk.headers[:, Header.RECORD_COUNT] > RECORDS_MAX) & (spans[:, Span.POLICY] != Policy.OPAQUE)
        for number in np.flatnonzero(is_too_large).tolist():
            faults[number] = f"{chunk.rows[number][Header.RECORD_COUNT]} records are more than compaction looks at"
            spans[number, Span.POLICY] = Policy.OPAQUE

    def _run(
        self, chunk: Chunk, spans: Numbers, bodies: list[bytes], first: int, last: int, faults: dict[int, str]
    ) -> Run:
        rows = _rows_max(chunk.headers[first:last], spans[first:last])
        if rows > self.keep.size:
            self._allocate(rows)
        scratch = np.frombuffer(bodies[0] if len(bodies) == 1 else b"".join(bodies) or b"\0", np.uint8)
        run = Run(self, chunk, spans, scratch, first, last)
        for number in (first + np.flatnonzero(spans[first:last, Span.FAULT])).tolist():
            faults[number] = explain(*spans[number, Span.FAULT : Span.FAULT_POSITION + 1].tolist())
            spans[number, Span.POLICY] = Policy.OPAQUE
        return run


def _rows_max(headers: Numbers, spans: Numbers) -> int:
    """No more records than this can be in these batches, whatever their headers say."""
    room = (spans[:, Span.END] - spans[:, Span.START]) // RECORD_BYTES_MIN
    rows = np.clip(headers[:, Header.RECORD_COUNT], 0, room)
    return int(rows[spans[:, Span.POLICY] != Policy.OPAQUE].sum())


def _compressed(chunk: Chunk, spans: Numbers) -> list[int]:
    """The numbers of the batches that have to be decompressed."""
    is_compressed = (chunk.headers[:, Header.ATTRIBUTES] & CODEC_MASK) != 0
    is_wanted = (spans[:, Span.POLICY] != Policy.OPAQUE) & (spans[:, Span.END] > spans[:, Span.START])
    numbers: list[int] = np.flatnonzero(is_compressed & is_wanted).tolist()
    return numbers


def _decompressed(chunk: Chunk, number: int, spans: Numbers, faults: dict[int, str]) -> bytes:
    """The records of a compressed batch; b"" and a fault if they cannot be had."""
    row = chunk.rows[number]
    start, end = row[Header.POSITION] + HEADER_BYTES, row[Header.POSITION] + row[Header.SIZE]
    try:
        body = decompress(row[Header.ATTRIBUTES] & CODEC_MASK, memoryview(chunk.data)[start:end], BODY_BYTES_MAX)
    except ApiError as error:
        faults[number] = error.message
        spans[number, Span.POLICY] = Policy.OPAQUE
        return b""
    if not body:
        spans[number, Span.END] = spans[number, Span.START]
    return body
