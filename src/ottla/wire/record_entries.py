"""The keys and values of batches, for a reader that wants nothing else of their records.

A key is given in two pieces: what is before its last four bytes, and those as a number. The keys of committed offsets
end with a partition, and of a million of them it is the first piece that repeats. Cutting costs nothing where it is
unpacked.

Coordinators read a million records at a start, so this does in one loop what `wire.records` does in several calls, and
makes no object for a record. Records of one request are mostly alike in shape: neighbours that are get unpacked all at
once. It believes as little: every length stays inside its record and every record inside the
batch, and nothing is left over. CORRUPT_MESSAGE otherwise.

Who commits one offset at a time writes batches of one record each. Batches of one length are mostly laid out alike, so
for each length the layout of the last one is kept (`LoneLayout`): the next one is unpacked by it at once, and has it if
the bytes between its fields, which are lengths and deltas, are the same. Where one batch of a layout follows another, a
whole run of them is read at once (`_read_run`): no line of Python is run for a batch. Neighbours are given together.

What an editor must keep true: a batch has its entries taken by a known layout only if all of its bytes that are neither
key nor value nor of no interest were compared, and its checksum is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, starmap
from operator import eq
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

Entry: TypeAlias = tuple[bytes | None, int | None, bytes | None]
"""A record's key without its last four bytes, those as a signed number, and the value. A key of fewer bytes than that
is in one piece, and its number is None. See `key_of`."""
LoneLayout: TypeAlias = tuple[Callable[[bytes, int], tuple[Any, ...]], bytes, bytes]
"""Of a batch with one record: how to unpack all of it, what is from the count of its records to its key, and between
that and its value."""
Layout: TypeAlias = tuple[int, int, int, int, int, int]
"""Where a record, its key and its value begin and end: start, key, key's end, value, value's end, end."""

NUMBER_BYTES: Final = 4
LONE_LAYOUTS_MAX: Final = 1024
ALIKE_MIN: Final = 8
"""Fewer records than this are not worth a look whether they are alike."""
RUN_MIN: Final = 16
RUN_MAX: Final = 512
"""The same of batches, and how many are read at once: other threads wait meanwhile."""

TOGETHER_MAX: Final = 1024
"""How many neighbours of one record each are given together: they are still in the processor's cache then."""

_TOP_BITS: Final = bytes(byte & 0x80 for byte in range(256))
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES
_HEADER_FORM: Final = ">qi4xbIhi16xq6xi"
_HEADER: Final = Struct(_HEADER_FORM)
"""A batch's header without the leader epoch, the times and what makes a producer's batches unique."""
_LONE_HEADER_FORM: Final = ">q8xbI6s30x"
"""The same up to the count of records, without length and producer; attributes and last delta in one piece."""
_NO_ATTRIBUTES: Final = bytes(6)
_COUNT_AT: Final = HEADER_BYTES - 4
_RUN_COLUMNS: Final = (*range(8, 12), 16, *range(CRC_START, CRC_START + 6), *range(_COUNT_AT, HEADER_BYTES))
"""The bytes of a header that are the same in a run: length, magic, attributes, last delta, count."""
_unpack_length = Struct(">8xi").unpack_from
_unpack_offset = Struct(">q").unpack_from
_unpack_number = Struct(">i").unpack_from
_pack_number = Struct(">i").pack


class BatchOfEntries(NamedTuple):
    """One batch: where it lies, and what is in it."""

    position: int
    end: int
    last_offset: int
    producer_id: int
    """That of the transaction which it belongs to, -1 outside of one."""
    is_control: bool
    entries: list[Entry] | None
    """None if the batch does not check out, and if it is a control batch. Neighbours of one record each are one."""


def key_of(start: bytes | None, number: int | None) -> bytes | None:
    """The key of an entry, in one piece."""
    return start if start is None or number is None else start + _pack_number(number)


def batches_of_entries(
    data: bytes, from_offset: int, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[int, int, int, int, bool, list[Entry] | None]]:
    """The batches in `data` that reach `from_offset`, each as the fields of a BatchOfEntries.

    One that is cut off at the end is left out; CORRUPT_MESSAGE where there is no batch.
    """
    view, size, position = memoryview(data), len(data), 0
    layouts: dict[int, LoneLayout] = {}
    last_layout: LoneLayout | None = None
    lone: list[Entry] = []
    lone_from = lone_offset = next_try = 0
    while size - position >= HEADER_BYTES:
        (length,) = _unpack_length(data, position)
        start, position = position, position + LENGTH_PREFIX_BYTES + length
        if (layout := layouts.get(length)) is not None and position <= size:
            unpack, before_key, before_value = layout
            last_offset, magic, crc, attributes, before, key, number, between, value, no_headers = unpack(data, start)
            if (
                before == before_key
                and between == before_value
                and attributes == _NO_ATTRIBUTES
                and not no_headers
                and magic == MAGIC
                and last_offset >= from_offset
                and crc32c(view[start + CRC_START : position]) == crc
            ):
                if not lone:
                    lone_from = start
                lone.append((key, number, value))
                lone_offset = last_offset
                if layout is last_layout and len(lone) >= next_try:
                    run = _read_run(data, start, position, len(key) + NUMBER_BYTES, len(between), len(value))
                    lone += run
                    run_bytes = len(run) * (position - start)
                    position += run_bytes
                    (lone_offset,) = _unpack_offset(data, start + run_bytes)
                    next_try = len(lone) + (1 if run else RUN_MIN)
                last_layout = layout
                if len(lone) >= TOGETHER_MAX:
                    yield lone_from, position, lone_offset, -1, False, lone
                    lone, next_try = [], 0
                continue
        base_offset, length, magic, crc, attributes, last_delta, producer_id, count = _HEADER.unpack_from(data, start)
        if length < _LENGTH_MIN or magic != MAGIC:
            if lone:
                yield lone_from, start, lone_offset, -1, False, lone
            raise _no_batch(start, length, magic)
        if position > size:
            position = start
            break
        if (last_offset := base_offset + last_delta) < from_offset:
            continue
        entries: list[Entry] | None = None
        if crc32c(view[start + CRC_START : position]) == crc and not attributes & CONTROL_BIT:
            entries = _entries_or_none(data, start + HEADER_BYTES, position, attributes & CODEC_MASK, count, size_max)
        if count == 1 and not attributes and entries is not None:
            if not lone:
                lone_from = start
            lone += entries
            lone_offset = last_offset
            _keep_layout(layouts, length, data, start, position)
            continue
        if lone:
            yield lone_from, start, lone_offset, -1, False, lone
            lone, next_try = [], 0
        producer_id = producer_id if attributes & TRANSACTIONAL_BIT else -1
        yield start, position, last_offset, producer_id, attributes & CONTROL_BIT != 0, entries
    if lone:
        yield lone_from, position, lone_offset, -1, False, lone


def _keep_layout(layouts: dict[int, LoneLayout], length: int, data: bytes, start: int, end: int) -> None:
    """Remember how a batch with one record, which checks out, is laid out: if its key is long enough to
    be cut, and it has a value and no headers."""
    _, pos = read_signed(data, start + HEADER_BYTES)
    _, pos = read_signed_long(data, pos + 1)
    _, pos = read_signed(data, pos)
    key_bytes, key_at = read_signed(data, pos)
    key_end = key_at + key_bytes
    if key_bytes < NUMBER_BYTES:
        return
    value_bytes, value_at = read_signed(data, key_end)
    if value_bytes < 0 or value_at + value_bytes + 1 != end:
        return
    if len(layouts) >= LONE_LAYOUTS_MAX:
        layouts.clear()
    before, between = data[start + _COUNT_AT : key_at], data[key_end:value_at]
    form = f"{_LONE_HEADER_FORM}{len(before)}s{key_bytes - NUMBER_BYTES}si{len(between)}s{value_bytes}sB"
    layouts[length] = _unpack_from(form), before, between


def _read_run(data: bytes, start: int, at: int, key_bytes: int, between: int, value_bytes: int) -> list[Entry]:
    """The entries of the batches from `at` on, as far as they are laid out as the one from `start` to there and check
    out."""
    step = at - start
    count, near = min(RUN_MAX, (len(data) - at) // step), at + (RUN_MIN - 1) * step
    if count < RUN_MIN or data[near + 8 : near + 12] != data[start + 8 : start + 12]:
        return []
    first, value_at = data[start:at], step - 1 - value_bytes
    key_end = value_at - between
    key_at = key_end - key_bytes
    for column in (*_RUN_COLUMNS, *range(HEADER_BYTES, key_at), *range(key_end, value_at), step - 1):
        byte, told = first[column : column + 1], data[at + column : at + count * step : step]
        if told != byte * count:
            count -= len(told.lstrip(byte))
            if count < RUN_MIN:
                return []
    run, checked = data[at : at + count * step], step - CRC_START
    form = f">{key_at}x{key_bytes - NUMBER_BYTES}si{between}x{value_bytes}sx"
    entries: list[Entry] = list(iter_unpack(form, run))
    told_crcs = list(chain.from_iterable(iter_unpack(f">{CRC_START - 4}xI{checked}x", run)))
    found_crcs = list(starmap(crc32c, iter_unpack(f"{CRC_START}x{checked}s", run)))
    if found_crcs != told_crcs:
        del entries[list(map(eq, found_crcs, told_crcs)).index(False) :]
    return entries


@lru_cache(LONE_LAYOUTS_MAX)
def _unpack_from(form: str) -> Callable[[bytes, int], tuple[Any, ...]]:
    return Struct(form).unpack_from


def _entries_or_none(data: bytes, pos: int, end: int, codec: int, count: int, size_max: int) -> list[Entry] | None:
    """The entries of a batch whose records are from `pos` to `end`; None if they are not what they should be."""
    try:
        if codec:
            body = decompress(codec, memoryview(data)[pos:end], size_max)
            return read_entries(body, 0, len(body), count)
        return read_entries(data, pos, end, count)
    except ApiError:
        return None


def read_entries(data: bytes, pos: int, size: int, count: int) -> list[Entry]:
    """Key and value of each of `count` records, which fill `data` from `pos` to `size`."""
    try:
        return _read_entries(data, pos, size, count)
    except (IndexError, MalformedMessageError) as error:
        raise _corrupt(f"a record runs over its end ({error})") from None


def _read_entries(data: bytes, pos: int, size: int, count: int) -> list[Entry]:
    found: list[Entry] = []
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
        if length < NUMBER_BYTES:
            key, number = data[key_at:key_end] if length >= 0 else None, None
        else:
            if key_end > end:
                raise _corrupt(f"a key at byte {key_at} leaves its record")
            key, (number,) = data[key_at : key_end - NUMBER_BYTES], _unpack_number(data, key_end - NUMBER_BYTES)
        byte = data[pos]
        if byte < 0x80:
            length, pos = byte >> 1 ^ -(byte & 1), pos + 1
        else:
            length, pos = read_signed(data, pos)
        after = pos + length
        if after >= end or pos > end:
            raise _corrupt(f"a field at byte {pos} leaves its record")
        found.append((key, number, data[pos:after] if length >= 0 else None))
        if len(found) >= next_try and count - len(found) >= ALIKE_MIN and number is not None and length >= 0:
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


def _unpack_alike(data: bytes, count: int, layout: Layout) -> Iterator[Entry]:
    start, key_at, key_end, value_at, after, end = layout
    cut = key_end - key_at - NUMBER_BYTES
    form = f">{key_at - start}x{cut}si{value_at - key_end}x{after - value_at}s{end - after}x"
    return iter_unpack(form, data[end : end + count * (end - start)])


def _no_batch(position: int, length: int, magic: int) -> ApiError:
    reason = f"no record batch at byte {position}: length {length}, magic {magic}"
    return ApiError(ErrorCode.CORRUPT_MESSAGE, reason)


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the record batch is corrupt: {reason}")
