"""A batch's body, record by record, in machine code.

Theory of operation. A body is what follows the 61 bytes of a batch's header, decompressed: `count` records, each

    length | attributes i8 | timestamp delta | offset delta | key | value | headers

where all numbers but the attributes are zigzag varints and a length of -1 is null. Nothing in it is believed: the bytes
come from clients. `read_record` is the only code that walks over them, and it never looks beyond the record, nor a
record beyond the body. A body is right if it holds exactly `count` records that fill it, if each is filled by its
fields, and if offset deltas rise. Those of a producer's batch count from 0 without a gap; compaction leaves gaps.

`parse_records` writes what it finds into columns, `check_records` only judges. Both answer with a verdict of three
numbers: a code of `BodyFault`, the record where it was found, and the byte. A body that is right may still hold records
that its topic does not take; `check_records` finds these too, and goes on to the last of them.
"""

# numba has no types of its own: what it decorates is untyped to the type checker.
# mypy: disable-error-code="misc, no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

from enum import IntEnum
from typing import Final

from numba import boolean, int64, njit, types

from ottla.model.ids import NO_TIMESTAMP
from ottla.wire.compiled.memory import address_of, load_byte

RECORD_BYTES_MIN: Final = 7
"""One byte each for the length, the attributes, two deltas, two lengths and the count of headers."""

READABLE_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
COLUMNS = int64[:, ::1]
_VERDICT = types.UniTuple(int64, 3)
_JUDGEMENT = types.UniTuple(int64, 5)


class Column:
    """The rows of the two-dimensional array that `parse_records` fills; one column of it per record."""

    OFFSET_DELTA: Final = 0
    TIMESTAMP_DELTA: Final = 1
    KEY_POSITION: Final = 2
    KEY_LENGTH: Final = 3
    VALUE_POSITION: Final = 4
    VALUE_LENGTH: Final = 5
    HEADER_COUNT: Final = 6
    HEADERS_POSITION: Final = 7
    """Of the first header, after the count; the headers end where the record does."""
    RECORD_POSITION: Final = 8
    """Of its length."""
    RECORD_END: Final = 9
    COUNT: Final = 10


class Refused:
    """The rows of the array in which `check_records` names records; one column of it per record."""

    RECORD: Final = 0
    CODE: Final = 1
    TIMESTAMP: Final = 2
    COUNT: Final = 3


class BodyFault(IntEnum):
    """What may be wrong with a body, and from KEY_MISSING on what a topic may have against a record that is right.

    Of several such records the one with the highest number decides what a batch is refused for.
    """

    NONE = 0
    COUNT = 1
    RECORD_LENGTH = 2
    TIMESTAMP_DELTA = 3
    OFFSET_DELTA = 4
    KEY = 5
    VALUE = 6
    HEADERS = 7
    RECORD_NOT_FILLED = 8
    BODY_NOT_FILLED = 9
    KEY_MISSING = 10
    TIMESTAMP_RANGE = 11


_SENTENCES: Final = {
    BodyFault.COUNT: "the batch claims more records than its body has room for",
    BodyFault.RECORD_LENGTH: "its length is malformed or leaves the batch",
    BodyFault.TIMESTAMP_DELTA: "its timestamp delta is malformed",
    BodyFault.OFFSET_DELTA: "its offset delta is malformed or out of order",
    BodyFault.KEY: "its key is malformed or leaves the record",
    BodyFault.VALUE: "its value is malformed or leaves the record",
    BodyFault.HEADERS: "its headers are malformed or leave the record",
    BodyFault.RECORD_NOT_FILLED: "its fields end before the record does",
    BodyFault.BODY_NOT_FILLED: "bytes are left after the last record",
}


def explain(code: int, record: int, position: int) -> str:
    """A verdict on the form of a body in words."""
    return f"record {record}: {explain_fault(code, position)}"


def explain_fault(code: int, position: int) -> str:
    """The same where the record is named elsewhere, or it is none's fault."""
    return f"{_SENTENCES[BodyFault(code)]} (byte {position} of the decompressed batch)"


# Plain numbers, since an enum's member costs a kernel its type.
_OK: Final = int(BodyFault.NONE)
_COUNT: Final = int(BodyFault.COUNT)
_RECORD_LENGTH: Final = int(BodyFault.RECORD_LENGTH)
_TIMESTAMP_DELTA: Final = int(BodyFault.TIMESTAMP_DELTA)
_OFFSET_DELTA: Final = int(BodyFault.OFFSET_DELTA)
_KEY: Final = int(BodyFault.KEY)
_VALUE: Final = int(BodyFault.VALUE)
_HEADERS: Final = int(BodyFault.HEADERS)
_RECORD_NOT_FILLED: Final = int(BodyFault.RECORD_NOT_FILLED)
_BODY_NOT_FILLED: Final = int(BodyFault.BODY_NOT_FILLED)
_KEY_MISSING: Final = int(BodyFault.KEY_MISSING)
_TIMESTAMP_RANGE: Final = int(BodyFault.TIMESTAMP_RANGE)
_R_RECORD: Final = Refused.RECORD
_R_CODE: Final = Refused.CODE
_R_TIMESTAMP: Final = Refused.TIMESTAMP
_C_OFFSET_DELTA: Final = Column.OFFSET_DELTA
_C_TIMESTAMP_DELTA: Final = Column.TIMESTAMP_DELTA
_C_KEY_POSITION: Final = Column.KEY_POSITION
_C_KEY_LENGTH: Final = Column.KEY_LENGTH
_C_VALUE_POSITION: Final = Column.VALUE_POSITION
_C_VALUE_LENGTH: Final = Column.VALUE_LENGTH
_C_HEADER_COUNT: Final = Column.HEADER_COUNT
_C_HEADERS_POSITION: Final = Column.HEADERS_POSITION
_C_RECORD_POSITION: Final = Column.RECORD_POSITION
_C_RECORD_END: Final = Column.RECORD_END


@njit
def read_varint(address, end):
    """A zigzag varint of at most 32 bits and the address after it, which is -1 if there is none before `end`."""
    if address >= end:
        return int64(0), int64(-1)
    byte = load_byte(address)
    address += 1
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if address >= end or shift > 28:
            return int64(0), int64(-1)
        byte = load_byte(address)
        address += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if value > 0xFFFFFFFF:
        return int64(0), int64(-1)
    return (value >> 1) ^ -(value & 1), address


@njit
def read_varlong(address, end):
    """A zigzag varint of at most 64 bits and the address after it, which is -1 if there is none before `end`."""
    if address >= end:
        return int64(0), int64(-1)
    byte = load_byte(address)
    address += 1
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if address >= end or shift > 63:
            return int64(0), int64(-1)
        byte = load_byte(address)
        address += 1
        if shift == 63 and byte > 1:
            return int64(0), int64(-1)
        value |= (byte & 0x7F) << shift
        shift += 7
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), address


@njit
def _skip_headers(address, end, count):
    """The address after `count` headers, -1 if they do not lie before `end`."""
    if count < 0 or count > end - address:
        return int64(-1)
    for _ in range(count):
        name_length, address = read_varint(address, end)
        if address < 0 or name_length < 0 or name_length > end - address:
            return int64(-1)
        address += name_length
        value_length, address = read_varint(address, end)
        if address < 0 or value_length < -1 or value_length > end - address:
            return int64(-1)
        address += max(value_length, 0)
    return address


@njit
def read_record(address, body_end):
    """One record: a code, its end, its two deltas, addresses and lengths of its key and value, its headers."""
    bad = int64(-1)
    length, address = read_varint(address, body_end)
    if address < 0 or length < 1 or length > body_end - address:
        return _RECORD_LENGTH, bad, bad, bad, bad, bad, bad, bad, bad, bad
    end = address + length
    timestamp_delta, address = read_varlong(address + 1, end)
    if address < 0:
        return _TIMESTAMP_DELTA, end, bad, bad, bad, bad, bad, bad, bad, bad
    offset_delta, address = read_varint(address, end)
    if address < 0:
        return _OFFSET_DELTA, end, bad, bad, bad, bad, bad, bad, bad, bad
    key_length, key = read_varint(address, end)
    if key < 0 or key_length < -1 or key_length > end - key:
        return _KEY, end, bad, bad, bad, bad, bad, bad, bad, bad
    value_length, value = read_varint(key + max(key_length, 0), end)
    if value < 0 or value_length < -1 or value_length > end - value:
        return _VALUE, end, bad, bad, bad, bad, bad, bad, bad, bad
    header_count, headers = read_varint(value + max(value_length, 0), end)
    if headers < 0:
        return _HEADERS, end, bad, bad, bad, bad, bad, bad, bad, bad
    address = _skip_headers(headers, end, header_count)
    if address < 0:
        return _HEADERS, end, bad, bad, bad, bad, bad, bad, bad, bad
    code = _OK if address == end else _RECORD_NOT_FILLED
    return code, end, timestamp_delta, offset_delta, key, key_length, value, value_length, header_count, headers


@njit
def _is_in_order(offset_delta, previous, offset_delta_max, consecutive):
    if consecutive:
        return offset_delta == previous + 1
    return previous < offset_delta <= offset_delta_max


@njit(
    _VERDICT(READABLE_BYTES, int64, int64, int64, int64, boolean, COLUMNS, int64),
    nogil=True,
    cache=True,
)
def parse_records(body, start, end, count, offset_delta_max, consecutive, columns, column):
    """Write the `count` records of `body[start:end]` into `columns[:, column:]`; positions are those in `body`.

    `consecutive` asks for offset deltas 0, 1, 2, ...; else they rise and stay within `offset_delta_max`. After a fault
    the columns hold nothing of use. The caller sees to it that 0 <= start <= end <= len(body).
    """
    if count < 0 or count > (end - start) // RECORD_BYTES_MIN or column + count > columns.shape[1]:
        return _COUNT, int64(0), start
    origin = address_of(body)
    position = start
    previous = int64(-1)
    for index in range(count):
        (
            code, record_end, timestamp_delta, offset_delta, key, key_length, value, value_length, header_count, headers
        ) = read_record(origin + position, origin + end)  # fmt: skip
        if code != _OK:
            return code, index, position
        if not _is_in_order(offset_delta, previous, offset_delta_max, consecutive):
            return _OFFSET_DELTA, index, position
        at = column + index
        columns[_C_OFFSET_DELTA, at] = offset_delta
        columns[_C_TIMESTAMP_DELTA, at] = timestamp_delta
        columns[_C_KEY_POSITION, at] = key - origin
        columns[_C_KEY_LENGTH, at] = key_length
        columns[_C_VALUE_POSITION, at] = value - origin
        columns[_C_VALUE_LENGTH, at] = value_length
        columns[_C_HEADER_COUNT, at] = header_count
        columns[_C_HEADERS_POSITION, at] = headers - origin
        columns[_C_RECORD_POSITION, at] = position
        columns[_C_RECORD_END, at] = record_end - origin
        previous = offset_delta
        position = record_end - origin
    if position != end:
        return _BODY_NOT_FILLED, count, position
    return _OK, count, end


@njit
def _objection(key_length, timestamp, requires_keys, timestamp_min, timestamp_max):
    """What the topic has against a record; a record without a time is of every time."""
    if requires_keys and key_length < 0:
        return _KEY_MISSING
    if timestamp != NO_TIMESTAMP and (timestamp < timestamp_min or timestamp > timestamp_max):
        return _TIMESTAMP_RANGE
    return _OK


@njit(
    _JUDGEMENT(READABLE_BYTES, int64, int64, int64, boolean, int64, int64, int64, COLUMNS),
    nogil=True,
    cache=True,
)
def check_records(body, start, end, count, requires_keys, base_timestamp, timestamp_min, timestamp_max, refused):
    """Judge `body[start:end]` as the body of a producer's batch, whose offset deltas count from 0 without a gap.

    Behind the verdict: how many records are refused in a body that is right, and the largest timestamp (at least
    NO_TIMESTAMP). As many of the refused ones as `refused` has columns are written there.
    """
    if count < 0 or count > (end - start) // RECORD_BYTES_MIN:
        return _COUNT, int64(0), start, int64(0), int64(NO_TIMESTAMP)
    origin = address_of(body)
    position = start
    largest = int64(NO_TIMESTAMP)
    worst, first, first_position, refused_count = _OK, count, end, int64(0)
    for index in range(count):
        code, record_end, timestamp_delta, offset_delta, _, key_length, _, _, _, _ = read_record(
            origin + position, origin + end
        )
        if code != _OK:
            return code, index, position, int64(0), largest
        if offset_delta != index:
            return _OFFSET_DELTA, index, position, int64(0), largest
        timestamp = base_timestamp + timestamp_delta
        largest = max(largest, timestamp)
        objection = _objection(key_length, timestamp, requires_keys, timestamp_min, timestamp_max)
        if objection != _OK:
            if refused_count == 0:
                first, first_position = index, position
            if refused_count < refused.shape[1]:
                refused[_R_RECORD, refused_count] = index
                refused[_R_CODE, refused_count] = objection
                refused[_R_TIMESTAMP, refused_count] = timestamp
            worst = max(worst, objection)
            refused_count += 1
        position = record_end - origin
    if position != end:
        return _BODY_NOT_FILLED, count, position, int64(0), largest
    return worst, first, first_position, refused_count, largest
