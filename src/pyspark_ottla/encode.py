"""Arrow record batches into Kafka record batches, one partition's rows behind each other.

Theory of operation. Each row gets its partition: the one it names, else the one of its key, else the one whose turn it
is. Rows are sorted by partition, keeping their order, and a kernel writes them into that partition's buffer. A buffer
that is full becomes a batch: compressed, given a header, handed on. A sender that has a producer's id writes it, and
the checksum anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.model.ids import TopicPartition
from ottla.wire.batch import TRANSACTIONAL_BIT, build
from ottla.wire.compiled.encoding import choose_partitions, encode_rows
from ottla.wire.compression import compress
from ottla.wire.varint import signed

BATCH_BYTES: Final = 512 * 1024
"""A partition's rows are sent in batches of about this size."""
_NO_PRODUCER: Final = (-1, -1, -1)
_NO_BYTES: Final = np.empty(0, np.uint8)
_NO_ENDS: Final = np.empty(0, np.int32)
_NO_ROWS: Final = np.empty(0, np.int64)

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Ends = np.ndarray[Any, np.dtype[np.int32]]


class RowError(ValueError):
    """A row that cannot be written; the message says which and why."""


class EncodedBatch(NamedTuple):
    """A batch that is ready but for the producer's id."""

    partition: TopicPartition
    records: bytearray
    record_count: int


class _Column(NamedTuple):
    """A column of bytes as kernels take it; without flags nothing is null."""

    content: Bytes
    ends: Ends
    flags: Bytes


class _Building:
    """The batch of a partition that is being filled."""

    __slots__ = ("base_timestamp_ms", "buffer", "count", "position")

    def __init__(self, size: int) -> None:
        self.buffer = np.empty(size, np.uint8)
        self.position = 0
        self.count = 0
        self.base_timestamp_ms = time.time_ns() // 1_000_000


class BatchEncoder:
    """Takes tables and gives batches. `partition_count` says how many partitions a topic has."""

    def __init__(
        self,
        partition_count: Callable[[str], int],
        *,
        topic: str | None = None,
        codec: int = 0,
        level: int | None = None,
        transactional: bool = False,
        row_bytes_max: int = 1 << 20,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._partition_count = partition_count
        self._topic = topic
        self._attributes = codec | (TRANSACTIONAL_BIT if transactional else 0)
        self._codec = codec
        self._level = level
        self._row_bytes_max = row_bytes_max
        self._batch_bytes = batch_bytes
        self._building: dict[TopicPartition, _Building] = {}
        self._turn = time.time_ns() % 1009
        self._rows_before = 0

    def add(self, table: pa.RecordBatch) -> Iterator[EncodedBatch]:
        """The batches that are full with the rows of a table."""
        if not table.num_rows:
            return
        columns = {name: table.column(name) for name in table.schema.names}
        key, value = _bytes_column(columns.get("key"), table.num_rows), _bytes_column(columns["value"], table.num_rows)
        headers = _headers_column(columns["headers"]) if "headers" in columns else (_NO_BYTES, _NO_ENDS)
        for topic, rows in self._topics(columns.get("topic"), table.num_rows):
            chosen = self._partitions(topic, rows, columns.get("partition"), key)
            order = np.argsort(chosen, kind="stable")
            edges = np.flatnonzero(np.diff(chosen[order])) + 1
            for part in np.split(order, edges):
                partition = TopicPartition(topic, int(chosen[part[0]]))
                yield from self._append(partition, rows[part], key, value, headers)
        self._rows_before += table.num_rows

    def finish(self) -> Iterator[EncodedBatch]:
        """What is left."""
        for partition in list(self._building):
            yield self._close(partition)

    # -- where rows go

    def _topics(self, column: pa.Array | None, row_count: int) -> Iterator[tuple[str, Numbers]]:
        rows = np.arange(row_count, dtype=np.int64)
        if self._topic is not None:
            yield self._topic, rows
            return
        if column is None:
            raise RowError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
        if column.null_count:
            row = self._rows_before + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise RowError(
                f"null topic present in the data (row {row} of its task). Use the topic option for setting a topic."
            )
        encoded = column.dictionary_encode()
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        for number, name in enumerate(encoded.dictionary.to_pylist()):
            yield name, rows[indices == number]

    def _partitions(self, topic: str, rows: Numbers, column: pa.Array | None, key: _Column) -> Numbers:
        count = self._partition_count(topic)
        chosen = np.full(len(key.ends) - 1, -1, np.int64)
        if column is not None:
            named = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero((named[rows] >= count) | (named[rows] < -1))
            if len(wrong):
                row = int(rows[wrong[0]])
                raise RowError(
                    f"row {self._rows_before + row} of its task names partition {int(named[row])}, but topic {topic} "
                    f"has {count} partitions"
                )
            chosen[:] = named
        self._turn += 1
        choose_partitions(key.content, key.ends, key.flags, count, self._turn % count, chosen)
        picked: Numbers = chosen[rows]
        return picked

    # -- batches

    def _append(
        self, partition: TopicPartition, rows: Numbers, key: _Column, value: _Column, headers: tuple[Bytes, Ends]
    ) -> Iterator[EncodedBatch]:
        rows = np.ascontiguousarray(rows)
        first = 0
        while first < len(rows):
            building = self._building.get(partition)
            if building is None:
                building = self._building[partition] = _Building(self._batch_bytes)
            written, position = encode_rows(
                rows, first, len(rows), *key, *value, *headers, _NO_ROWS, building.base_timestamp_ms, building.count,
                building.buffer, building.position, len(building.buffer),
            )  # fmt: skip
            building.count += written - first
            building.position = position
            if written == first and not building.count:
                self._make_room(partition, building, int(rows[first]), key, value, headers)
            elif written < len(rows):
                yield self._close(partition)
            first = written

    def _make_room(
        self,
        partition: TopicPartition,
        building: _Building,
        row: int,
        key: _Column,
        value: _Column,
        headers: tuple[Bytes, Ends],
    ) -> None:
        """A row that is larger than a batch gets one of its own, if it may be that large at all."""
        size = sum(int(ends[row + 1]) - int(ends[row]) for ends in (key.ends, value.ends, headers[1]) if len(ends))
        if size > self._row_bytes_max:
            raise RowError(
                f"row {self._rows_before + row} of its task has {size} bytes, more than kafka.max.request.size "
                f"({self._row_bytes_max}), and cannot go to {partition}: raise that and max.message.bytes of the topic"
            )
        building.buffer = np.empty(size + 64, np.uint8)

    def _close(self, partition: TopicPartition) -> EncodedBatch:
        building = self._building.pop(partition)
        body: Any = building.buffer[: building.position].data
        if self._codec:
            body = compress(self._codec, body, self._level)
        now_ms, count = building.base_timestamp_ms, building.count
        batch = build(body, self._attributes, count - 1, now_ms, now_ms, count)
        return EncodedBatch(partition, batch, count)


def _bytes_column(column: pa.Array | None, row_count: int) -> _Column:
    """A string or binary column; none at all is a column of nulls."""
    if column is None:
        return _Column(_NO_BYTES, np.zeros(row_count + 1, np.int32), np.zeros(row_count, np.uint8))
    array = column if column.type in (pa.binary(), pa.string()) else column.cast(pa.binary())
    valid, ends, content = array.buffers()
    flags = _NO_BYTES if not array.null_count else _flags(valid, array.offset, len(array))
    bytes_ = _NO_BYTES if content is None else np.frombuffer(content, np.uint8)
    return _Column(bytes_, np.frombuffer(ends, np.int32, len(array) + 1, array.offset * 4), flags)


def _flags(valid: pa.Buffer, offset: int, count: int) -> Bytes:
    """Arrow's bits as bytes. Its own functions for that would be imported for as long as a small batch takes."""
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=offset + count, bitorder="little")
    return np.ascontiguousarray(bits[offset:])


def _headers_column(column: pa.Array) -> tuple[Bytes, Ends]:
    """Headers as records hold them: a count, then name and value of each."""
    encoded: list[bytes] = []
    ends = np.zeros(len(column) + 1, np.int32)
    total = 0
    for row, headers in enumerate(column.to_pylist()):
        parts = [signed(len(headers or ()))]
        for header in headers or ():
            if header is None or header["key"] is None:
                raise RowError("a header without a key is in the data: filter such headers out")
            name, value = header["key"].encode(), header["value"]
            parts += (signed(len(name)), name, signed(-1 if value is None else len(value)), value or b"")
        encoded.append(b"".join(parts))
        total += len(encoded[-1])
        ends[row + 1] = total
    return np.frombuffer(b"".join(encoded), np.uint8), ends
