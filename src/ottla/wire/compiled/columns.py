"""Fetched batches into the columns of a table, in machine code: for readers that want whole tables, such as Spark.

Theory of operation. `scan_batches` finds the batches of a fetch; Python decides which of them a reader may see and
decompresses those that are compressed (a `Source` row says where each body lies); `fill_columns` then walks over all
records once and writes what columns are made of: numbers, and for keys, values and headers one run of bytes with the
end of each item. These are Arrow's own buffers, so nothing is copied afterwards.

Rooms are not measured beforehand: a fetch of n bytes, decompressed, holds at most n bytes of keys and of values, and
the headers of the batches say how many records there are. What they say is checked against the bytes first.

Nothing in a body is believed: `read_record` never looks beyond the record, nor a record beyond its body.
"""

# numba has no types of its own: what it decorates is untyped to the type checker.
# mypy: disable-error-code="misc, no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

from numba import boolean, int32, int64, njit, types, uint8

from ottla.wire.compiled.batches import Header
from ottla.wire.compiled.memory import address_of, copy_bytes
from ottla.wire.compiled.records import (
    COLUMNS,
    READABLE_BYTES,
    RECORD_BYTES_MIN,
    BodyFault,
    read_record,
    read_varint,
)

_BYTES = uint8[::1]
_FLAGS = uint8[:, ::1]
_ENDS = int32[:, ::1]
_NUMBERS = int64[::1]
_TYPES = int32[::1]


class Source:
    """The columns of the table that says where bodies lie, one row per batch."""

    WANTED: Final = 0
    """1 if the batch has records for this reader."""
    IN_SCRATCH: Final = 1
    START: Final = 2
    END: Final = 3
    COUNT: Final = 4


class Count:
    """What `fill_columns` has written, item by item."""

    ROWS: Final = 0
    KEY_BYTES: Final = 1
    VALUE_BYTES: Final = 2
    KEY_NULLS: Final = 3
    VALUE_NULLS: Final = 4
    HEADERS: Final = 5
    HEADER_NAME_BYTES: Final = 6
    HEADER_VALUE_BYTES: Final = 7
    HEADER_VALUE_NULLS: Final = 8
    HEADER_NULLS: Final = 9
    """Rows without any header."""
    COUNT: Final = 10


class Ends:
    """The rows of the array of ends: each holds, after a 0, where each item of a column ends."""

    KEY: Final = 0
    VALUE: Final = 1
    HEADERS: Final = 2
    """In headers, not in bytes."""
    COUNT: Final = 3


class Number:
    """The rows of the array of numbers."""

    OFFSET: Final = 0
    TIMESTAMP_US: Final = 1
    COUNT: Final = 2


# Plain numbers, since attributes of a class cost a kernel its cache.
_WANTED, _IN_SCRATCH, _START, _END = Source.WANTED, Source.IN_SCRATCH, Source.START, Source.END
_ROWS, _KEY_BYTES, _VALUE_BYTES = Count.ROWS, Count.KEY_BYTES, Count.VALUE_BYTES
_KEY_NULLS, _VALUE_NULLS, _HEADERS = Count.KEY_NULLS, Count.VALUE_NULLS, Count.HEADERS
_NAME_BYTES, _HEADER_VALUE_BYTES = Count.HEADER_NAME_BYTES, Count.HEADER_VALUE_BYTES
_HEADER_VALUE_NULLS, _HEADER_NULLS = Count.HEADER_VALUE_NULLS, Count.HEADER_NULLS
_E_KEY, _E_VALUE, _E_HEADERS = Ends.KEY, Ends.VALUE, Ends.HEADERS
_N_OFFSET, _N_TIMESTAMP = Number.OFFSET, Number.TIMESTAMP_US
_H_ATTRIBUTES, _H_BASE_OFFSET, _H_RECORD_COUNT = Header.ATTRIBUTES, Header.BASE_OFFSET, Header.RECORD_COUNT
_H_BASE_TIMESTAMP, _H_MAX_TIMESTAMP = Header.BASE_TIMESTAMP, Header.MAX_TIMESTAMP
_OK = int(BodyFault.NONE)
_BAD_COUNT = int(BodyFault.COUNT)
_BAD_OFFSET = int(BodyFault.OFFSET_DELTA)
_NOT_FILLED = int(BodyFault.BODY_NOT_FILLED)
_APPEND_TIME_BIT: Final = 0x08
_US_PER_MS: Final = 1000


@njit
def _fill_headers(address, end, count, header_ends, header_bytes, name_bytes, header_flags, counts):
    """Copy the headers of one record, which `read_record` has walked over before."""
    at = counts[_HEADERS]
    names, values = address_of(name_bytes), address_of(header_bytes)
    for _ in range(count):
        length, address = read_varint(address, end)
        copy_bytes(names + counts[_NAME_BYTES], address, length)
        counts[_NAME_BYTES] += length
        length, address = read_varint(address + length, end)
        if length < 0:
            header_flags[at] = 0
            counts[_HEADER_VALUE_NULLS] += 1
        else:
            header_flags[at] = 1
            copy_bytes(values + counts[_HEADER_VALUE_BYTES], address, length)
            counts[_HEADER_VALUE_BYTES] += length
            address += length
        at += 1
        header_ends[_E_KEY, at] = counts[_NAME_BYTES]
        header_ends[_E_VALUE, at] = counts[_HEADER_VALUE_BYTES]
    counts[_HEADERS] = at


@njit(
    types.UniTuple(int64, 4)(
        READABLE_BYTES, READABLE_BYTES, COLUMNS, COLUMNS, int64, int64, int64, int64, boolean,
        COLUMNS, _TYPES, _ENDS, _BYTES, _BYTES, _FLAGS, _ENDS, _BYTES, _BYTES, _BYTES, _NUMBERS,
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def fill_columns(
    chunk, scratch, headers, sources, first, last, from_offset, until_offset, with_headers,
    numbers, timestamp_types, ends, key_bytes, value_bytes, flags, header_ends, name_bytes, header_bytes, header_flags,
    counts,
):  # fmt: skip
    """Write the records of batches `first` to `last` whose offsets lie in the range, after those counted in `counts`.

    `flags` holds two rows: whether a key, whether a value is there. Returns a code of `BodyFault`, and after a fault
    the batch, the record and the byte where it is. The caller has made room for all that the batches can hold.
    """
    keys, values = address_of(key_bytes), address_of(value_bytes)
    row, key_end, value_end = counts[_ROWS], counts[_KEY_BYTES], counts[_VALUE_BYTES]
    for batch in range(first, last):
        if sources[batch, _WANTED] == 0:
            continue
        source = scratch if sources[batch, _IN_SCRATCH] != 0 else chunk
        start, end, count = sources[batch, _START], sources[batch, _END], headers[batch, _H_RECORD_COUNT]
        if count < 0 or count > (end - start) // RECORD_BYTES_MIN:
            return int64(_BAD_COUNT), batch, int64(0), int64(0)
        stamped = headers[batch, _H_ATTRIBUTES] & _APPEND_TIME_BIT != 0
        base_timestamp = headers[batch, _H_MAX_TIMESTAMP] if stamped else headers[batch, _H_BASE_TIMESTAMP]
        base_offset = headers[batch, _H_BASE_OFFSET]
        origin = address_of(source)
        address, body_end = origin + start, origin + end
        previous = int64(-1)
        for record in range(count):
            position = address - origin - start
            (
                code, address, timestamp_delta, offset_delta, key, key_length, value, value_length, header_count, at
            ) = read_record(address, body_end)  # fmt: skip
            if code != _OK:
                return int64(code), batch, int64(record), position
            if offset_delta <= previous:
                return int64(_BAD_OFFSET), batch, int64(record), position
            previous = offset_delta
            offset = base_offset + offset_delta
            if offset < from_offset or offset >= until_offset:
                continue
            numbers[_N_OFFSET, row] = offset
            numbers[_N_TIMESTAMP, row] = (base_timestamp + (0 if stamped else timestamp_delta)) * _US_PER_MS
            timestamp_types[row] = 1 if stamped else 0
            if key_length < 0:
                flags[0, row] = 0
                counts[_KEY_NULLS] += 1
            else:
                flags[0, row] = 1
                copy_bytes(keys + key_end, key, key_length)
                key_end += key_length
            if value_length < 0:
                flags[1, row] = 0
                counts[_VALUE_NULLS] += 1
            else:
                flags[1, row] = 1
                copy_bytes(values + value_end, value, value_length)
                value_end += value_length
            if with_headers:
                if header_count > 0:
                    _fill_headers(
                        at, address, header_count, header_ends, header_bytes, name_bytes, header_flags, counts
                    )  # fmt: skip
                else:
                    counts[_HEADER_NULLS] += 1
                ends[_E_HEADERS, row + 1] = counts[_HEADERS]
            row += 1
            ends[_E_KEY, row] = key_end
            ends[_E_VALUE, row] = value_end
        if address != body_end:
            return int64(_NOT_FILLED), batch, count, address - origin - start
    counts[_ROWS], counts[_KEY_BYTES], counts[_VALUE_BYTES] = row, key_end, value_end
    return int64(_OK), last, int64(0), int64(0)
