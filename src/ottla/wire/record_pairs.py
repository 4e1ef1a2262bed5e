"""The keys and values of batches, for a reader that wants nothing else of their records.

Coordinators read a million records at a start, so this does in one loop what `wire.records` does in several calls, and
makes no object for a record. Records of one request are mostly alike in shape: neighbours that are get unpacked all at
once. It believes as little: every length stays inside its record and every record inside the
batch, and nothing is left over. CORRUPT_MESSAGE otherwise.

Who commits one offset at a time writes batches of one record each. Batches of one length are mostly laid out alike, so
for each length the layout of the last one is kept (`LoneLayout`): the next one is unpacked by it at once, and has it if
the bytes between its fields, which are lengths and deltas, are the same. Neighbours are given together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct, iter_unpack
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.wire.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from ottla.wire.compression import decompress
from ottla.wire.crc import crc32c
from ottla.wire.records import DECOMPRESSED_BYTES_MAX
from ottla.wire.varint import read_signed, read_signed_long

Pair: TypeAlias = tuple[bytes | None, bytes | None]
LoneLayout: TypeAlias = tuple[Callable[[bytes, int], tuple[Any, ...]], bytes, bytes]
"""Of a batch with one record: how to unpack all of it, what is before its key, and between that and its value."""
Layout: TypeAlias = tuple[int, int, int, int, int, int]
"""Where a record, its key and its value begin and end: start, key, key's end, value, value's end, end."""

LONE_LAYOUTS_MAX: Final = 1024
ALIKE_MIN: Final = 8
"""Fewer records than this are not worth a look whether they are alike."""

_TOP_BITS: Final = bytes(byte & 0x80 for byte in range(256))
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES
_HEADER_FORM: Final = ">qi4xbIhi16xq6xi"
_HEADER: Final = Struct(_HEADER_FORM)
"""A batch's header without the leader epoch, the times and what makes a producer's batches unique."""
_LONE_HEADER_FORM: Final = ">q8xbIhi30xi"
"""The same without what follows from the layout, and without the producer."""
_unpack_length = Struct(">8xi").unpack_from


class BatchOfPairs(NamedTuple):
    """One batch: where it lies, and what is in it."""

    position: int
    end: int
    last_offset: int
    producer_id: int
    """That of the transaction which it belongs to, -1 outside of one."""
    is_control: bool
    pairs: list[Pair] | None
    """None if the batch does not check out, and if it is a control batch. Neighbours of one record each are one."""


def batches_of_pairs(
    data: bytes, from_offset: int, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[int, int, int, int, bool, list[Pair] | None]]:
    """The batches in `data` that reach `from_offset`, each as the fields of a BatchOfPairs.

    One that is cut off at the end is left out; CORRUPT_MESSAGE where there is no batch.
    """
    view, size, position = memoryview(data), len(data), 0
    layouts: dict[int, LoneLayout] = {}
    lone: list[Pair] = []
    lone_from = lone_offset = 0
    while size - position >= HEADER_BYTES:
        (length,) = _unpack_length(data, position)
        start, position = position, position + LENGTH_PREFIX_BYTES + length
        layout = layouts.get(length)
        if layout is not None and position <= size:
            unpack, before_key, before_value = layout
            base_offset, magic, crc, attributes, last_delta, count, before, key, between, value, no_headers = unpack(
                data, start
            )
            last_offset = base_offset + last_delta
            if (
                before == before_key
                and between == before_value
                and count == 1
                and not attributes
                and not no_headers
                and magic == MAGIC
                and last_offset >= from_offset
                and crc32c(view[start + CRC_START : position]) == crc
            ):
                if not lone:
                    lone_from = start
                lone.append((key, value))
                lone_offset = last_offset
                continue
        base_offset, length, magic, crc, attributes, last_delta, producer_id, count = _HEADER.unpack_from(data, start)
        if length < _LENGTH_MIN or magic != MAGIC:
            if lone:
                yield lone_from, start, lone_offset, -1, False, lone
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"no record batch at byte {start}: length {length}, magic {magic}"
            )
        if position > size:
            position = start
            break
        last_offset = base_offset + last_delta
        if last_offset < from_offset:
            continue
        pairs: list[Pair] | None = None
        if crc32c(view[start + CRC_START : position]) == crc and not attributes & CONTROL_BIT:
            pairs = _pairs_or_none(data, start + HEADER_BYTES, position, attributes & CODEC_MASK, count, size_max)
        if count == 1 and not attributes and pairs is not None:
            if not lone:
                lone_from = start
            lone += pairs
            lone_offset = last_offset
            _keep_layout(layouts, length, data, start, position)
            continue
        if lone:
            yield lone_from, start, lone_offset, -1, False, lone
            lone = []
        transaction = producer_id if attributes & TRANSACTIONAL_BIT else -1
        yield start, position, last_offset, transaction, attributes & CONTROL_BIT != 0, pairs
    if lone:
        yield lone_from, position, lone_offset, -1, False, lone


def _keep_layout(layouts: dict[int, LoneLayout], length: int, data: bytes, start: int, end: int) -> None:
    """Remember how a batch with one record, which checks out, is laid out; if it has a key, a value and no headers."""
    _, pos = read_signed(data, start + HEADER_BYTES)
    _, pos = read_signed_long(data, pos + 1)
    _, pos = read_signed(data, pos)
    key_bytes, key_at = read_signed(data, pos)
    key_end = key_at + key_bytes
    if key_bytes < 0:
        return
    value_bytes, value_at = read_signed(data, key_end)
    if value_bytes < 0 or value_at + value_bytes + 1 != end:
        return
    if len(layouts) >= LONE_LAYOUTS_MAX:
        layouts.clear()
    before, between = key_at - start - HEADER_BYTES, value_at - key_end
    form = f"{_LONE_HEADER_FORM}{before}s{key_bytes}s{between}s{value_bytes}sB"
    layouts[length] = _unpack_from(form), data[start + HEADER_BYTES : key_at], data[key_end:value_at]


@lru_cache(LONE_LAYOUTS_MAX)
def _unpack_from(form: str) -> Callable[[bytes, int], tuple[Any, ...]]:
    return Struct(form).unpack_from


def _pairs_or_none(data: bytes, pos: int, end: int, codec: int, count: int, size_max: int) -> list[Pair] | None:
    """The pairs of a batch whose records are from `pos` to `end`; None if they are not what they should be."""
    try:
        if codec:
            body = decompress(codec, memoryview(data)[pos:end], size_max)
            return read_pairs(body, 0, len(body), count)
        return read_pairs(data, pos, end, count)
    except ApiError:
        return None


def read_pairs(data: bytes, pos: int, size: int, count: int) -> list[Pair]:
    """Key and value of each of `count` records, which fill `data` from `pos` to `size`."""
    try:
        return _read_pairs(data, pos, size, count)
    except (IndexError, MalformedMessageError) as error:
        raise _corrupt(f"a record runs over its end ({error})") from None


def _read_pairs(data: bytes, pos: int, size: int, count: int) -> list[Pair]:
    found: list[Pair] = []
    next_try = 0
    while len(found) < count:
        start, byte = pos, data[pos]
        if byte < 0x80:
            length, pos = byte >> 1 ^ -(byte & 1), pos + 1
        elif data[pos + 1] < 0x80 and not byte & 1:
            length, pos = (byte & 0x7F) >> 1 | data[pos + 1] << 6, pos + 2
        else:
            length, pos = read_signed(data, pos)
        end = pos + length
        if not pos < end <= size:
            raise _corrupt(f"a record of {length} bytes at byte {pos}")
        pos += 2 if data[pos + 1] < 0x80 else read_signed_long(data, pos + 1)[1] - pos
        if data[pos] < 0x80:
            pos += 1
        else:
            pos = pos + 2 if data[pos + 1] < 0x80 else read_signed(data, pos)[1]
        byte = data[pos]
        if byte < 0x80:
            length, key_at = byte >> 1 ^ -(byte & 1), pos + 1
        else:
            length, key_at = read_signed(data, pos)
        pos = key_end = key_at + length if length >= 0 else key_at
        key = data[key_at:key_end] if length >= 0 else None
        byte = data[pos]
        if byte < 0x80:
            length, pos = byte >> 1 ^ -(byte & 1), pos + 1
        else:
            length, pos = read_signed(data, pos)
        after = pos + length
        if after >= end or pos > end:
            raise _corrupt(f"a field at byte {pos} leaves its record")
        found.append((key, data[pos:after] if length >= 0 else None))
        if len(found) >= next_try and count - len(found) >= ALIKE_MIN and key is not None and length >= 0:
            layout = start, key_at, key_end, pos, after, end
            alike = _count_alike(data, size, count - len(found), layout)
            found += _unpack_alike(data, alike, layout)
            next_try = len(found) + ALIKE_MIN
            end += alike * (end - start)
        pos = end
    if pos != size:
        raise _corrupt(f"{size - pos} bytes are left after the last record")
    return found


def _count_alike(data: bytes, size: int, count: int, layout: Layout) -> int:
    """How many of the next records, `count` at most, have every field where the one of `layout` has it.

    So their lengths are the same, and the numbers between have as many bytes: the top bit of each byte is the same. The
    bytes that say so lie in steps of one record, and each is looked at for all records at once.
    """
    start, key_at, key_end, value_at, _, end = layout
    step = end - start
    count = min(count, (size - end) // step)
    if count < ALIKE_MIN or data[start] != data[end]:
        return 0
    limit = end + count * step
    numbers_at, numbers_end = start + 1, key_at - 1
    while data[numbers_at - 1] >= 0x80:
        numbers_at += 1
    while data[numbers_end - 1] >= 0x80:
        numbers_end -= 1
    for at in (*range(start, key_at), *range(key_end, value_at)):
        column = data[at:limit:step]
        if numbers_at <= at < numbers_end:
            column = column.translate(_TOP_BITS)
        count = min(count, len(column) - len(column.lstrip(column[:1])) - 1)
    return count


def _unpack_alike(data: bytes, count: int, layout: Layout) -> Iterator[Pair]:
    start, key_at, key_end, value_at, after, end = layout
    form = f"{key_at - start}x{key_end - key_at}s{value_at - key_end}x{after - value_at}s{end - after}x"
    return iter_unpack(form, data[end : end + count * (end - start)])


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the record batch is corrupt: {reason}")
