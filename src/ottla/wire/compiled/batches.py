"""Many batches at a time, in machine code: find them, parse them, judge their records, copy what stays.

Theory of operation. A log is read in chunks of whole batches. `scan_batches` reads their headers into one table, Python
decides batch by batch what is to be done (a `Policy`) and decompresses what is compressed into a second buffer, then
each kernel runs once over all of them, so that even batches of one record cost little:

    scan_batches    chunk -> headers (`Header`)
    parse_batches   bodies -> columns (`records.Column`) and what the key map needs (`keys.Probe`)
    judge_records   columns and the map's answers -> keep or drop, and a summary per batch (`Span`)
    copy_kept       one batch's kept records -> its new body

A body that is not what its header says has a fault in its `Span` and no records; what becomes of such a batch is for
the caller to say, and nothing of it has been believed.
"""

# numba has no types of its own: what it decorates is untyped to the type checker.
# mypy: disable-error-code="misc, no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

from numba import int64, njit, types, uint8, uint64

from ottla.wire.compiled.keys import BYTES, NUMBERS, Probe, hash_key
from ottla.wire.compiled.memory import address_of, copy_bytes, load_byte, store_byte
from ottla.wire.compiled.records import (
    COLUMNS,
    READABLE_BYTES,
    BodyFault,
    Column,
    parse_records,
    read_varint,
    read_varlong,
)
from ottla.wire.compiled.varints import varint_bytes, write_varint

HEADER_BYTES: Final = 61
RECORD_GROWTH_MAX: Final = 13
"""Bytes that a record may grow by when its timestamp delta changes: nine for the delta, four for the length."""

_LENGTH_PREFIX_BYTES: Final = 12
_FLAGS = uint8[::1]


class Header:
    """The columns of the table that `scan_batches` fills, one row per batch."""

    POSITION: Final = 0
    SIZE: Final = 1
    BASE_OFFSET: Final = 2
    LEADER_EPOCH: Final = 3
    CRC: Final = 4
    ATTRIBUTES: Final = 5
    LAST_OFFSET_DELTA: Final = 6
    BASE_TIMESTAMP: Final = 7
    MAX_TIMESTAMP: Final = 8
    PRODUCER_ID: Final = 9
    PRODUCER_EPOCH: Final = 10
    BASE_SEQUENCE: Final = 11
    RECORD_COUNT: Final = 12
    COUNT: Final = 13


class Policy:
    """What is to be done with the records of a batch."""

    OPAQUE: Final = 0
    """Nothing: they are not looked at."""
    BY_KEY: Final = 1
    """A record stays if the map knows none later of its key."""
    BY_KEY_NO_TOMBSTONES: Final = 2
    """The same, but a record without a value goes."""
    KEEP: Final = 3
    """All stay; they are parsed because they may have to be rewritten."""


class Span:
    """The columns of the table of bodies, one row per batch: five that the caller fills, and what the kernels found."""

    IN_SCRATCH: Final = 0
    START: Final = 1
    END: Final = 2
    POLICY: Final = 3
    FIRST_ROW: Final = 4
    FAULT: Final = 5
    FAULT_RECORD: Final = 6
    FAULT_POSITION: Final = 7
    KEPT: Final = 8
    KEPT_TOMBSTONES: Final = 9
    """Of those that the map has reached."""
    WITHOUT_KEY: Final = 10
    MAX_TIMESTAMP_DELTA: Final = 11
    """The largest of those kept."""
    COUNT: Final = 12


class ScanEnd:
    """Why `scan_batches` stopped."""

    END: Final = 0
    """Nothing is left, or less than a header."""
    PARTIAL: Final = 1
    """The next batch does not end in this chunk."""
    CORRUPT: Final = 2
    """What comes next has the size or the format of no batch."""


# Plain numbers, since attributes of a class cost a kernel its cache.
_H_POSITION, _H_SIZE, _H_BASE_OFFSET = Header.POSITION, Header.SIZE, Header.BASE_OFFSET
_H_CRC, _H_ATTRIBUTES, _H_LAST_OFFSET_DELTA = Header.CRC, Header.ATTRIBUTES, Header.LAST_OFFSET_DELTA
_H_BASE_TIMESTAMP, _H_MAX_TIMESTAMP = Header.BASE_TIMESTAMP, Header.MAX_TIMESTAMP
_H_PRODUCER_ID, _H_PRODUCER_EPOCH, _H_BASE_SEQUENCE = Header.PRODUCER_ID, Header.PRODUCER_EPOCH, Header.BASE_SEQUENCE
_H_RECORD_COUNT, _H_LEADER_EPOCH = Header.RECORD_COUNT, Header.LEADER_EPOCH
_S_IN_SCRATCH, _S_START, _S_END, _S_POLICY, _S_FIRST_ROW = (
    Span.IN_SCRATCH, Span.START, Span.END, Span.POLICY, Span.FIRST_ROW
)  # fmt: skip
_S_FAULT, _S_FAULT_RECORD, _S_FAULT_POSITION = Span.FAULT, Span.FAULT_RECORD, Span.FAULT_POSITION
_S_KEPT, _S_KEPT_TOMBSTONES, _S_WITHOUT_KEY = Span.KEPT, Span.KEPT_TOMBSTONES, Span.WITHOUT_KEY
_S_MAX_TIMESTAMP_DELTA = Span.MAX_TIMESTAMP_DELTA
_OPAQUE, _BY_KEY, _BY_KEY_NO_TOMBSTONES, _KEEP = (
    Policy.OPAQUE, Policy.BY_KEY, Policy.BY_KEY_NO_TOMBSTONES, Policy.KEEP
)  # fmt: skip
_END, _PARTIAL, _CORRUPT = ScanEnd.END, ScanEnd.PARTIAL, ScanEnd.CORRUPT
_NO_FAULT = int(BodyFault.NONE)
_OFFSET_DELTA, _TIMESTAMP_DELTA = Column.OFFSET_DELTA, Column.TIMESTAMP_DELTA
_KEY_POSITION, _KEY_LENGTH, _VALUE_LENGTH = Column.KEY_POSITION, Column.KEY_LENGTH, Column.VALUE_LENGTH
_RECORD_POSITION, _RECORD_END = Column.RECORD_POSITION, Column.RECORD_END
_P_KEY_ADDRESS, _P_KEY_LENGTH, _P_OFFSET, _P_HASH = Probe.KEY_ADDRESS, Probe.KEY_LENGTH, Probe.OFFSET, Probe.HASH


@njit
def _big_endian(address, size):
    """An unsigned number of `size` bytes; one of 8 bytes comes out signed, as it is meant."""
    value = int64(0)
    for at in range(size):
        value = (value << 8) | load_byte(address + at)
    return value


@njit
def _signed(value, bits):
    return (value ^ (int64(1) << (bits - 1))) - (int64(1) << (bits - 1))


@njit
def _read_header(address, headers, row):
    """Fill the fields that come from the header."""
    headers[row, _H_BASE_OFFSET] = _big_endian(address, 8)
    headers[row, _H_LEADER_EPOCH] = _signed(_big_endian(address + 12, 4), 32)
    headers[row, _H_CRC] = _big_endian(address + 17, 4)
    headers[row, _H_ATTRIBUTES] = _big_endian(address + 21, 2)
    headers[row, _H_LAST_OFFSET_DELTA] = _signed(_big_endian(address + 23, 4), 32)
    headers[row, _H_BASE_TIMESTAMP] = _big_endian(address + 27, 8)
    headers[row, _H_MAX_TIMESTAMP] = _big_endian(address + 35, 8)
    headers[row, _H_PRODUCER_ID] = _big_endian(address + 43, 8)
    headers[row, _H_PRODUCER_EPOCH] = _signed(_big_endian(address + 51, 2), 16)
    headers[row, _H_BASE_SEQUENCE] = _signed(_big_endian(address + 53, 4), 32)
    headers[row, _H_RECORD_COUNT] = _signed(_big_endian(address + 57, 4), 32)


@njit(types.UniTuple(int64, 4)(READABLE_BYTES, int64, COLUMNS), nogil=True, cache=True)
def scan_batches(chunk, end, headers):
    """Read the headers of the whole batches in `chunk[:end]`.

    Returns how many there are, where they end, a `ScanEnd`, and the size of the batch that did not fit.
    """
    origin = address_of(chunk)
    position, row = int64(0), int64(0)
    while row < headers.shape[0] and position + HEADER_BYTES <= end:
        address = origin + position
        size = _LENGTH_PREFIX_BYTES + _signed(_big_endian(address + 8, 4), 32)
        magic = load_byte(address + 16)
        if size < HEADER_BYTES or magic != 2:
            return row, position, _CORRUPT, size
        if position + size > end:
            return row, position, _PARTIAL, size
        headers[row, _H_POSITION] = position
        headers[row, _H_SIZE] = size
        _read_header(address, headers, row)
        position += size
        row += 1
    return row, position, _END, int64(0)


@njit
def _probe(origin, columns, probes, first, last, base_offset, policy, seed):
    """Prepare the map's questions for the records of one batch."""
    for row in range(first, last):
        probes[_P_OFFSET, row] = base_offset + columns[_OFFSET_DELTA, row]
        probes[_P_KEY_LENGTH, row] = -1
        probes[_P_HASH, row] = 0
        length = columns[_KEY_LENGTH, row]
        if length >= 0 and policy != _KEEP:
            key = origin + columns[_KEY_POSITION, row]
            probes[_P_KEY_ADDRESS, row] = key
            probes[_P_KEY_LENGTH, row] = length
            probes[_P_HASH, row] = int64(hash_key(key, length, seed))


@njit(
    int64(READABLE_BYTES, READABLE_BYTES, COLUMNS, COLUMNS, int64, int64, COLUMNS, COLUMNS, uint64),
    nogil=True,
    cache=True,
)
def parse_batches(chunk, scratch, headers, spans, first, last, columns, probes, seed):
    """Parse the bodies of batches `first` to `last`; returns the number of records.

    A body lies in the chunk, or, decompressed, in the scratch buffer. `columns` and `probes` have room for as many
    records as the bodies could hold.
    """
    row = int64(0)
    for batch in range(first, last):
        policy = spans[batch, _S_POLICY]
        spans[batch, _S_FIRST_ROW] = row
        spans[batch, _S_FAULT] = _NO_FAULT
        if policy == _OPAQUE:
            continue
        source = scratch if spans[batch, _S_IN_SCRATCH] != 0 else chunk
        count = headers[batch, _H_RECORD_COUNT]
        fault, record, position = parse_records(
            source, spans[batch, _S_START], spans[batch, _S_END], count, headers[batch, _H_LAST_OFFSET_DELTA], False,
            columns, row,
        )  # fmt: skip
        spans[batch, _S_FAULT] = fault
        spans[batch, _S_FAULT_RECORD] = record
        spans[batch, _S_FAULT_POSITION] = position - spans[batch, _S_START]
        if fault == _NO_FAULT:
            base_offset = headers[batch, _H_BASE_OFFSET]
            _probe(address_of(source), columns, probes, row, row + count, base_offset, policy, seed)
            row += count
    return row


@njit
def _stays(policy, offset, latest, key_length, value_length, map_end):
    """Whether a record stays; `latest` is the latest offset of its key below `map_end`, as far as the map knows."""
    if policy == _KEEP or offset >= map_end:
        return True
    if key_length < 0 or offset < latest:
        return False
    return value_length >= 0 or policy != _BY_KEY_NO_TOMBSTONES


@njit(types.void(COLUMNS, COLUMNS, int64, int64, COLUMNS, COLUMNS, NUMBERS, int64, _FLAGS), nogil=True, cache=True)
def judge_records(headers, spans, first, last, columns, probes, found, map_end, keep):
    """Set `keep` for each record of batches `first` to `last`, and sum up what stays of each batch."""
    for batch in range(first, last):
        policy = spans[batch, _S_POLICY]
        if policy == _OPAQUE or spans[batch, _S_FAULT] != _NO_FAULT:
            continue
        kept, tombstones, without_key = int64(0), int64(0), int64(0)
        latest_delta = int64(-0x8000000000000000)
        start = spans[batch, _S_FIRST_ROW]
        for row in range(start, start + headers[batch, _H_RECORD_COUNT]):
            key_length, value_length = columns[_KEY_LENGTH, row], columns[_VALUE_LENGTH, row]
            offset = probes[_P_OFFSET, row]
            stays = _stays(policy, offset, found[row], key_length, value_length, map_end)
            keep[row] = 1 if stays else 0
            if stays:
                kept += 1
                latest_delta = max(latest_delta, columns[_TIMESTAMP_DELTA, row])
                if value_length < 0 and offset < map_end and policy != _KEEP:
                    tombstones += 1
            elif key_length < 0:
                without_key += 1
        spans[batch, _S_KEPT] = kept
        spans[batch, _S_KEPT_TOMBSTONES] = tombstones
        spans[batch, _S_WITHOUT_KEY] = without_key
        spans[batch, _S_MAX_TIMESTAMP_DELTA] = latest_delta


@njit
def _copy_shifted(record, record_end, shift, target):
    """Copy a record whose timestamp delta changes by `shift`, and therefore its length."""
    _, after_length = read_varint(record, record_end)
    delta, rest = read_varlong(after_length + 1, record_end)
    target = write_varint(target, 1 + varint_bytes(delta + shift) + (record_end - rest))
    store_byte(target, load_byte(after_length))
    target = write_varint(target + 1, delta + shift)
    copy_bytes(target, rest, record_end - rest)
    return target + (record_end - rest)


@njit(int64(READABLE_BYTES, COLUMNS, _FLAGS, int64, int64, int64, BYTES, int64), nogil=True, cache=True)
def copy_kept(body, columns, keep, first, last, shift, target, position):
    """Write the kept records of `first` to `last` at `target[position:]`, each as it was but for its timestamp delta.

    Returns the position after them. `target` has room for the body and `RECORD_GROWTH_MAX` for each record.
    """
    origin, to = address_of(body), address_of(target) + position
    for row in range(first, last):
        if keep[row] == 0:
            continue
        record, end = origin + columns[_RECORD_POSITION, row], origin + columns[_RECORD_END, row]
        if shift != 0:
            to = _copy_shifted(record, end, shift, to)
        else:
            copy_bytes(to, record, end - record)
            to += end - record
    return to - address_of(target)
