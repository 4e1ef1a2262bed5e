"""Records one by one, in plain Python: for the client, the command line, timestamp lookup and tests.

The broker's hot path never comes here. What comes from a log or from the network is not believed: the batch must hold
as many records as its header says, each must lie inside it, and nothing may be left over. Every such lie is an ApiError
with CORRUPT_MESSAGE.

A record is `length | attributes i8 | timestamp delta | offset delta | key | value | headers`, where all numbers but the
attributes are zigzag varints and a length of -1 is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from struct import error as StructError
from typing import Final, NamedTuple, TypeVar

from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from ottla.wire import batch as record_batch
from ottla.wire.batch import HEADER_BYTES, BatchHeader
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.varint import read_signed, read_signed_long, signed

DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""What one batch may grow to unless the caller says otherwise."""

_NULL: Final = b"\x01"
_NO_ATTRIBUTES: Final = b"\x00"

_T = TypeVar("_T")


class Record(NamedTuple):
    """One record. A null key, a null value (a tombstone) and a null header value are None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


_new_record: Callable[[tuple[object, ...]], Record] = partial(tuple.__new__, Record)


def iterate(
    batch: bytes | bytearray | memoryview, *, size_max: int = DECOMPRESSED_BYTES_MAX, crc_check: bool = True
) -> list[Record]:
    """The records of exactly one batch; `size_max` bounds what it may decompress to."""
    return list(walk(batch, size_max=size_max, crc_check=crc_check))


def walk(
    batch: bytes | bytearray | memoryview, *, size_max: int = DECOMPRESSED_BYTES_MAX, crc_check: bool = True
) -> Iterator[Record]:
    """The same, one by one as they are asked for: a few kilobytes may be millions of them. A lie of the batch about its
    records is found out where it is."""
    header = _read_header(batch, crc_check)
    body = _body(batch, header, size_max)
    try:
        yield from _records(body, header)
    except (IndexError, MalformedMessageError) as error:
        raise _runs_over(error) from None


def find_timestamp(
    batch: bytes | bytearray | memoryview,
    timestamp: int,
    *,
    from_offset: int = 0,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """Offset and time of the first record, from an offset on, that is not older than `timestamp`.

    Reads no key, value or header.
    """
    header = _read_header(batch, crc_check=False)
    if header.max_timestamp < timestamp:
        return None
    times = _offsets_and_times(_body(batch, header, size_max), header)
    return _reading(lambda: next((found for found in times if found[1] >= timestamp and found[0] >= from_offset), None))


def max_timestamp_record(
    batch: bytes | bytearray | memoryview, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> tuple[int, int] | None:
    """Offset and time of the first of the youngest records; None if compaction has left none."""
    header = _read_header(batch, crc_check=False)
    times = _offsets_and_times(_body(batch, header, size_max), header)
    return _reading(lambda: max(times, key=lambda found: found[1], default=None))


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    level: int | None = None,
    base_offset: int | None = None,
    last_offset_delta: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
) -> bytearray:
    """One batch. Offsets rise; a producer counts them from 0. `attributes` adds flags of `wire.batch` to the codec.

    The base offset and the last offset delta are those of the first and the last record, unless they are given: a batch
    that compaction has emptied still covers its offsets.
    """
    if base_offset is None:
        base_offset = records[0].offset if records else 0
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else 0
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    body = b"".join([_encode(record, base_offset, base_timestamp) for record in records])
    return record_batch.build(
        compress(codec, body, level),
        attributes | codec,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        len(records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def _encode(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp, key, value, headers = record
    parts = [
        _NO_ATTRIBUTES,
        signed(timestamp - base_timestamp),
        signed(offset - base_offset),
        _NULL if key is None else signed(len(key)) + key,
        _NULL if value is None else signed(len(value)) + value,
        signed(len(headers)),
    ]
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (signed(len(encoded)), encoded, _NULL if content is None else signed(len(content)) + content)
    encoded = b"".join(parts)
    return signed(len(encoded)) + encoded


def _reading(read: Callable[[], _T]) -> _T:
    """Run a reader of records; whatever runs over an edge is a lie of the batch."""
    try:
        return read()
    except (IndexError, MalformedMessageError) as error:
        raise _runs_over(error) from None


def _runs_over(error: Exception) -> ApiError:
    return _corrupt(f"a record runs over its end ({error})")


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the record batch is corrupt: {reason}")


def _read_header(batch: bytes | bytearray | memoryview, crc_check: bool) -> BatchHeader:
    try:
        header = record_batch.read_header(batch)
    except StructError:
        raise _corrupt(f"it has {len(batch)} bytes, fewer than a header") from None
    if header.magic != record_batch.MAGIC or header.size != len(batch):
        raise _corrupt(f"magic {header.magic} and {header.size} bytes are claimed, {len(batch)} bytes are there")
    if crc_check and not record_batch.crc_matches(memoryview(batch), header):
        raise _corrupt("its CRC-32C does not match")
    return header


def _body(batch: bytes | bytearray | memoryview, header: BatchHeader, size_max: int) -> bytes:
    return decompress(header.codec, memoryview(batch)[HEADER_BYTES:], size_max)


def _check_all_read(body: bytes, pos: int) -> None:
    if pos != len(body):
        raise _corrupt(f"{len(body) - pos} bytes are left after the last record")


def _offsets_and_times(body: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and time of each record, skipping over the rest of it."""
    base_offset, base_timestamp, append_time = header.base_offset, header.base_timestamp, header.log_append_time
    pos = 0
    for _ in range(header.record_count):
        length, pos = read_signed(body, pos)
        end = pos + length
        timestamp_delta, pos = read_signed_long(body, pos + 1)
        offset_delta, pos = read_signed(body, pos)
        if not pos <= end <= len(body):
            raise _corrupt(f"a record of {length} bytes at byte {pos}")
        yield base_offset + offset_delta, header.max_timestamp if append_time else base_timestamp + timestamp_delta
        pos = end
    _check_all_read(body, pos)


def _records(body: bytes, header: BatchHeader) -> Iterator[Record]:
    base_offset, base_timestamp, append_time = header.base_offset, header.base_timestamp, header.log_append_time
    pos = 0
    for _ in range(header.record_count):
        length, pos = read_signed(body, pos)
        end = pos + length
        if not pos < end <= len(body):
            raise _corrupt(f"a record of {length} bytes at byte {pos}")
        timestamp_delta, pos = read_signed_long(body, pos + 1)
        offset_delta, pos = read_signed(body, pos)
        key, pos = _read_bytes(body, pos, end)
        value, pos = _read_bytes(body, pos, end)
        if end - pos == 1 and body[pos] == 0:
            headers: Sequence[tuple[str, bytes | None]] = ()
            pos = end
        else:
            headers, pos = _read_headers(body, pos, end)
        if pos != end:
            raise _corrupt(f"the record that ends at byte {end} has {end - pos} bytes too many")
        timestamp = header.max_timestamp if append_time else base_timestamp + timestamp_delta
        yield _new_record((base_offset + offset_delta, timestamp, key, value, headers))
    _check_all_read(body, pos)


def _read_bytes(body: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_signed(body, pos)
    if length < 0:
        if length != -1:
            raise _corrupt(f"a length of {length} at byte {pos}")
        return None, pos
    after = pos + length
    if after > end:
        raise _corrupt(f"a field of {length} bytes at byte {pos} leaves its record")
    return body[pos:after], after


def _read_headers(body: bytes, pos: int, end: int) -> tuple[Sequence[tuple[str, bytes | None]], int]:
    count, pos = read_signed(body, pos)
    if count == 0:
        return (), pos
    if not 0 < count <= end - pos:
        raise _corrupt(f"{count} headers at byte {pos}")
    headers = []
    for _ in range(count):
        name, pos = _read_bytes(body, pos, end)
        if name is None:
            raise _corrupt(f"a header without a name at byte {pos}")
        content, pos = _read_bytes(body, pos, end)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    return headers, pos
