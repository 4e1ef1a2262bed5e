"""Rows of a table into the records of batches, in machine code: for writers that have whole tables, such as Spark.

Theory of operation. A table comes in Arrow's form: for keys and values one run of bytes with the end of each item, and
flags for what is null. `choose_partitions` says where each row goes, as Kafka's Java producer would; numpy sorts the
rows by partition; `encode_rows` writes those of one partition behind each other as records, into a buffer that Python
puts a batch header before.

A record here has no headers, or headers that Python has encoded beforehand: these are rare, and kernels stay small.
"""

# numba has no types of its own: what it decorates is untyped to the type checker.
# mypy: disable-error-code="misc, no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

from numba import int32, int64, njit, types, uint8, uint32

from ottla.wire.compiled.memory import address_of, copy_bytes, load_byte, load_half, store_byte
from ottla.wire.compiled.records import READABLE_BYTES
from ottla.wire.compiled.varints import varint_bytes, write_varint

RECORD_OVERHEAD_MAX: Final = 36
"""Bytes of a record besides its key, value and headers: a length, attributes, two deltas and three counts."""

_READABLE_ENDS = types.Array(int32, 1, "C", readonly=True)
_READABLE_ROWS = types.Array(int64, 1, "C", readonly=True)
_ROWS = int64[::1]
_BYTES = uint8[::1]
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_NULL: Final = -1


@njit
def _murmur2(address, length):
    """The hash by which Kafka's Java producer chooses a partition, without its sign."""
    m = uint32(_M)
    h = uint32(_SEED) ^ uint32(length)
    whole = length & ~int64(3)
    at = int64(0)
    while at < whole:
        k = uint32(uint32(load_half(address + at)) * m)
        k = uint32((k ^ (k >> uint32(24))) * m)
        h = uint32(uint32(h * m) ^ k)
        at += 4
    left = length - whole
    if left > 0:
        tail = uint32(0)
        for byte in range(left):
            tail |= uint32(load_byte(address + whole + byte)) << uint32(8 * byte)
        h = uint32((h ^ tail) * m)
    h = uint32((h ^ (h >> uint32(13))) * m)
    return int64(h ^ (h >> uint32(15))) & int64(0x7FFFFFFF)


@njit(types.void(READABLE_BYTES, _READABLE_ENDS, READABLE_BYTES, int64, int64, _ROWS), nogil=True, cache=True)
def choose_partitions(key_bytes, key_ends, key_flags, partition_count, without_key, chosen):
    """Fill in where each row goes that has no partition yet (-1): by its key, else to `without_key`.

    `key_flags` is empty where every row has a key. Ends have one more item than there are rows.
    """
    keys = address_of(key_bytes)
    for row in range(len(chosen)):
        if chosen[row] >= 0:
            continue
        if len(key_flags) > 0 and key_flags[row] == 0:
            chosen[row] = without_key
        else:
            start = int64(key_ends[row])
            chosen[row] = _murmur2(keys + start, int64(key_ends[row + 1]) - start) % partition_count


@njit
def _item_length(ends, flags, row):
    if len(flags) > 0 and flags[row] == 0:
        return int64(_NULL)
    return int64(ends[row + 1]) - int64(ends[row])


@njit
def _write_item(to, source, length):
    to = write_varint(to, length)
    if length > 0:
        copy_bytes(to, source, length)
        to += length
    return to


@njit(
    types.UniTuple(int64, 2)(
        _READABLE_ROWS, int64, int64, READABLE_BYTES, _READABLE_ENDS, READABLE_BYTES, READABLE_BYTES, _READABLE_ENDS,
        READABLE_BYTES, READABLE_BYTES, _READABLE_ENDS, _READABLE_ROWS, int64, int64, _BYTES, int64, int64,
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def encode_rows(
    rows, first, last, key_bytes, key_ends, key_flags, value_bytes, value_ends, value_flags,
    header_bytes, header_ends, timestamps, base_timestamp, next_delta, target, position, limit,
):  # fmt: skip
    """Write `rows[first:last]` as records at `target[position:limit]`, numbered from `next_delta` on.

    Returns the first of the rows that was not written, for which there was no room, and the position after the last
    one that was. Headers come encoded, with their count before them; without any `header_ends` is empty. Timestamps are
    absolute; without any, all rows have the base.
    """
    keys, values, headers = address_of(key_bytes), address_of(value_bytes), address_of(header_bytes)
    origin = address_of(target)
    for index in range(first, last):
        row = rows[index]
        key_length, value_length = _item_length(key_ends, key_flags, row), _item_length(value_ends, value_flags, row)
        header_start, header_length = int64(0), int64(1)
        if len(header_ends) > 0:
            header_start = int64(header_ends[row])
            header_length = int64(header_ends[row + 1]) - header_start
        timestamp_delta = timestamps[row] - base_timestamp if len(timestamps) > 0 else int64(0)
        length = (
            1 + varint_bytes(timestamp_delta) + varint_bytes(next_delta) + varint_bytes(key_length)
            + max(key_length, 0) + varint_bytes(value_length) + max(value_length, 0) + header_length
        )  # fmt: skip
        if position + length + varint_bytes(length) > limit:
            return int64(index), position
        to = write_varint(origin + position, length)
        store_byte(to, int64(0))
        to = write_varint(to + 1, timestamp_delta)
        to = write_varint(to, next_delta)
        to = _write_item(to, keys + int64(key_ends[row]), key_length)
        to = _write_item(to, values + int64(value_ends[row]), value_length)
        if len(header_ends) > 0:
            copy_bytes(to, headers + header_start, header_length)
            to += header_length
        else:
            store_byte(to, int64(0))
            to += 1
        position = to - origin
        next_delta += 1
    return int64(last), position
