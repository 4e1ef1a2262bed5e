"""Fetched batches into Arrow record batches.

Theory of operation. A fetch brings a run of whole batches. `scan_batches` reads their headers into one table; numpy
picks the batches that a reader may see, Python looks at single batches only where it must (compressed ones, and
transactions when some were aborted); `fill_columns` writes all columns in one go. Only the columns that the schema
names are made into arrays.

What an editor must keep true:
- A batch that is damaged is an error that names topic, partition and offset. It is never left out.
- A few kilobytes may stand for gigabytes, so a fetch is decoded in runs of batches that decompress to so much. That is
  also what keeps the ends of Arrow's columns, which are 32 bits long, in bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.client.visibility import AbortedTransactions
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.batch import CODEC_MASK, CONTROL_BIT, crc_matches, read_header
from ottla.wire.compiled.batches import HEADER_BYTES, Header, ScanEnd, scan_batches
from ottla.wire.compiled.columns import Count, Ends, Number, Source, fill_columns
from ottla.wire.compiled.records import RECORD_BYTES_MIN, explain
from ottla.wire.compression import decompress_into
from ottla.wire.records import DECOMPRESSED_BYTES_MAX

ROWS_PER_BATCH: Final = 10_000
"""What Spark takes fastest."""
RUN_BYTES: Final = 64 << 20
"""Batches that decompress to this much together, or one that does so alone, are a run."""
SCRATCH_BYTES: Final = 8 << 20
"""Room for what a fetch decompresses to, which grows where it has to."""

_NOTHING: Final = np.empty(0, np.uint8)
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class CorruptBatchError(OttlaError):
    """A batch is not what its header says."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(
            f"the batch at offset {offset} of {partition} is corrupt: {reason}. Skip it by starting after it, or "
            "restore the topic"
        )
        self.partition = partition
        self.offset = offset


class _Buffers(NamedTuple):
    """Room for the columns of one fetch."""

    numbers: Numbers
    timestamp_types: np.ndarray[Any, np.dtype[np.int32]]
    ends: np.ndarray[Any, np.dtype[np.int32]]
    key_bytes: Bytes
    value_bytes: Bytes
    flags: Bytes
    header_ends: np.ndarray[Any, np.dtype[np.int32]]
    name_bytes: Bytes
    header_bytes: Bytes
    header_flags: Bytes
    counts: Numbers

    @classmethod
    def for_batches(cls, rows: int, size: int, *, with_headers: bool) -> _Buffers:
        headers, header_size = (size // 2, size) if with_headers else (0, 0)
        buffers = cls(
            np.empty((Number.COUNT, rows), np.int64),
            np.empty(rows, np.int32),
            np.empty((Ends.COUNT, rows + 1), np.int32),
            np.empty(size, np.uint8),
            np.empty(size, np.uint8),
            np.empty((2, rows), np.uint8),
            np.empty((2, headers + 1), np.int32),
            np.empty(header_size, np.uint8),
            np.empty(header_size, np.uint8),
            np.empty(headers, np.uint8),
            np.zeros(Count.COUNT, np.int64),
        )
        buffers.ends[:, 0] = 0
        buffers.header_ends[:, 0] = 0
        return buffers


class Decoder:
    """Decodes the fetches of one partition, in order."""

    def __init__(
        self,
        partition: TopicPartition,
        schema: pa.Schema,
        *,
        read_committed: bool = True,
        check_crc: bool = False,
    ) -> None:
        self._partition = partition
        self._schema = schema
        self._with_headers = "headers" in schema.names
        self._read_committed = read_committed
        self._check_crc = check_crc
        self._headers: Numbers = np.empty((256, Header.COUNT), np.int64)
        self._scratch: Bytes = _NOTHING
        """What was decompressed of a fetch; nothing refers to it once the fetch is decoded."""

    def decode(
        self, records: memoryview, start: int, end: int, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The records with offsets from `start` up to `end`, in batches of the size that Spark likes."""
        chunk = np.frombuffer(records, np.uint8)
        headers = self._scan(chunk)
        sources = self._sources(headers, records, aborted)
        for first, last in self._runs(chunk, headers, sources):
            rows, size = _room(headers[first:last], sources[first:last])
            buffers = _Buffers.for_batches(rows, size, with_headers=self._with_headers)
            fault, batch, record, position = fill_columns(
                chunk, self._scratch, headers, sources, first, last, start, end, self._with_headers, *buffers
            )
            if fault:
                raise self._corrupt(headers, int(batch), explain(fault, record, position))
            yield from self._tables(buffers)

    def _tables(self, buffers: _Buffers) -> Iterator[pa.RecordBatch]:
        rows = int(buffers.counts[Count.ROWS])
        columns = [self._array(name, buffers, rows) for name in self._schema.names]
        for first in range(0, rows, ROWS_PER_BATCH):
            count = min(ROWS_PER_BATCH, rows - first)
            parts = [column.slice(0 if len(column) < rows else first, count) for column in columns]
            yield pa.RecordBatch.from_arrays(parts, schema=self._schema)

    def _scan(self, chunk: Bytes) -> Numbers:
        while True:
            count, position, reason, _ = scan_batches(chunk, len(chunk), self._headers)
            if reason == ScanEnd.CORRUPT:
                offset = int(self._headers[count - 1, Header.BASE_OFFSET]) if count else -1
                raise CorruptBatchError(self._partition, offset, f"what follows it at byte {position} is no batch")
            if count < len(self._headers):
                return self._headers[:count]
            self._headers = np.empty((4 * len(self._headers), Header.COUNT), np.int64)

    def _sources(self, headers: Numbers, records: memoryview, aborted: Sequence[tuple[int, int]]) -> Numbers:
        """Where the body of each batch lies, compressed or not."""
        sources = np.zeros((len(headers), Source.COUNT), np.int64)
        sources[:, Source.START] = headers[:, Header.POSITION] + HEADER_BYTES
        sources[:, Source.END] = headers[:, Header.POSITION] + headers[:, Header.SIZE]
        sources[:, Source.WANTED] = (headers[:, Header.ATTRIBUTES] & CONTROL_BIT) == 0
        if self._check_crc:
            self._check_crcs(headers, records)
        if aborted and self._read_committed:
            self._leave_out_aborted(headers, sources, records, aborted)
        return sources

    def _runs(self, chunk: Bytes, headers: Numbers, sources: Numbers) -> Iterator[tuple[int, int]]:
        """The batches, some at a time: first and last plus one. What is compressed of them is in the scratch buffer."""
        first, total = 0, 0
        codecs = headers[:, Header.ATTRIBUTES] & CODEC_MASK
        for batch in np.flatnonzero((codecs != 0) & (sources[:, Source.WANTED] != 0)).tolist():
            body = chunk.data[int(sources[batch, Source.START]) : int(sources[batch, Source.END])]
            try:
                size = self._decompress(int(codecs[batch]), body, total)
            except ApiError as error:
                raise self._corrupt(headers, batch, str(error)) from error
            sources[batch, Source.IN_SCRATCH] = 1
            sources[batch, Source.START] = total
            total += size
            sources[batch, Source.END] = total
            if total >= RUN_BYTES:
                yield first, batch + 1
                first, total = batch + 1, 0
        if first < len(headers):
            yield first, len(headers)

    def _decompress(self, codec: int, body: memoryview, position: int) -> int:
        """Decompress to the scratch buffer, which grows while it is too small and may; returns how much it was."""
        while True:
            room = self._scratch.data[position : position + DECOMPRESSED_BYTES_MAX]
            size = decompress_into(codec, body, room)
            if size is not None:
                return size
            if len(room) == DECOMPRESSED_BYTES_MAX:
                raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"it decompresses to more than {len(room)} bytes")
            larger = np.empty(max(2 * len(self._scratch), position + SCRATCH_BYTES), np.uint8)
            larger[:position] = self._scratch[:position]
            self._scratch = larger

    def _leave_out_aborted(
        self, headers: Numbers, sources: Numbers, records: memoryview, aborted: Sequence[tuple[int, int]]
    ) -> None:
        transactions = AbortedTransactions(aborted)
        for batch in range(len(headers)):
            last_offset = int(headers[batch, Header.BASE_OFFSET] + headers[batch, Header.LAST_OFFSET_DELTA])
            producer_id, attributes = int(headers[batch, Header.PRODUCER_ID]), int(headers[batch, Header.ATTRIBUTES])
            if transactions.hide(last_offset, producer_id, attributes, self._batch(headers, records, batch)):
                sources[batch, Source.WANTED] = 0

    def _check_crcs(self, headers: Numbers, records: memoryview) -> None:
        for batch in range(len(headers)):
            raw = self._batch(headers, records, batch)
            if not crc_matches(raw, read_header(raw)):
                raise self._corrupt(headers, batch, "its checksum does not match")

    def _batch(self, headers: Numbers, records: memoryview, batch: int) -> memoryview:
        position = int(headers[batch, Header.POSITION])
        return records[position : position + int(headers[batch, Header.SIZE])]

    def _corrupt(self, headers: Numbers, batch: int, reason: str) -> CorruptBatchError:
        return CorruptBatchError(self._partition, int(headers[batch, Header.BASE_OFFSET]), reason)

    # -- arrays

    def _array(self, name: str, buffers: _Buffers, rows: int) -> pa.Array:
        """A column; where all rows are the same, no longer than a table is."""
        counts, table_rows = buffers.counts, min(rows, ROWS_PER_BATCH)
        if name == "key":
            valid = _bitmap(buffers.flags[0, :rows], counts[Count.KEY_NULLS])
            ends, content = buffers.ends[Ends.KEY, : rows + 1], buffers.key_bytes[: counts[Count.KEY_BYTES]]
            return pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(ends), pa.py_buffer(content)])
        if name == "value":
            valid = _bitmap(buffers.flags[1, :rows], counts[Count.VALUE_NULLS])
            ends, content = buffers.ends[Ends.VALUE, : rows + 1], buffers.value_bytes[: counts[Count.VALUE_BYTES]]
            return pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(ends), pa.py_buffer(content)])
        if name == "topic":
            return _repeated(self._partition.topic.encode(), table_rows)
        if name == "partition":
            return _numbers(pa.int32(), np.full(table_rows, self._partition.partition, np.int32))
        if name == "offset":
            return _numbers(pa.int64(), buffers.numbers[Number.OFFSET, :rows])
        if name == "timestamp":
            return _numbers(_TIMESTAMP, buffers.numbers[Number.TIMESTAMP_US, :rows])
        if name == "timestampType":
            return _numbers(pa.int32(), buffers.timestamp_types[:rows])
        return _headers_array(buffers, rows)


def _room(headers: Numbers, sources: Numbers) -> tuple[int, int]:
    """How many records and bytes the wanted batches can hold at most."""
    wanted = sources[:, Source.WANTED] != 0
    sizes = (sources[:, Source.END] - sources[:, Source.START])[wanted]
    counts = headers[:, Header.RECORD_COUNT][wanted]
    return int(np.clip(counts, 0, sizes // RECORD_BYTES_MIN).sum()), int(sizes.sum())


def _numbers(kind: pa.DataType, content: np.ndarray[Any, Any]) -> pa.Array:
    """A column without nulls. `pa.array` would import pandas first, which costs more than to decode a million rows."""
    return pa.Array.from_buffers(kind, len(content), [None, pa.py_buffer(content)])


def _bitmap(flags: Bytes, nulls: int) -> pa.Buffer | None:
    """Arrow's mark of what is there, which may be left out where everything is."""
    return pa.py_buffer(np.packbits(flags, bitorder="little")) if nulls else None


def _repeated(text: bytes, rows: int) -> pa.Array:
    ends = np.arange(0, (rows + 1) * len(text), len(text), dtype=np.int32) if text else np.zeros(rows + 1, np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)])


def _headers_array(buffers: _Buffers, rows: int) -> pa.Array:
    """Null for a record without headers, as in Spark's own source."""
    counts = buffers.counts
    count = int(counts[Count.HEADERS])
    name_ends, value_ends = buffers.header_ends[Ends.KEY, : count + 1], buffers.header_ends[Ends.VALUE, : count + 1]
    names = pa.Array.from_buffers(
        pa.string(),
        count,
        [None, pa.py_buffer(name_ends), pa.py_buffer(buffers.name_bytes[: counts[Count.HEADER_NAME_BYTES]])],
    )
    values = pa.Array.from_buffers(
        pa.binary(),
        count,
        [
            _bitmap(buffers.header_flags[:count], counts[Count.HEADER_VALUE_NULLS]),
            pa.py_buffer(value_ends),
            pa.py_buffer(buffers.header_bytes[: counts[Count.HEADER_VALUE_BYTES]]),
        ],
    )
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
    ends = buffers.ends[Ends.HEADERS, : rows + 1]
    valid = _bitmap((np.diff(ends) > 0).astype(np.uint8), counts[Count.HEADER_NULLS])
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [valid, pa.py_buffer(ends)], children=[pairs])
