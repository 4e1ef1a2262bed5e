"""One batch from a producer, looked into: full validation and another codec. For the record worker only.

The broker checks headers; this checks that the records are what the header says, and what their topic takes, by
`compiled.records.check_records`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

import numpy as np

from ottla.model.errors import ApiError, ErrorCode, InvalidRecordsError
from ottla.wire.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    read_header,
    set_max_timestamp,
)
from ottla.wire.compiled.records import BodyFault, Refused, check_records, explain_fault
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.crc import crc32c
from ottla.wire.records import DECOMPRESSED_BYTES_MAX

_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 17
_ATTRIBUTES: Final = Struct(">h")


RECORD_ERRORS_MAX: Final = 100
"""Records that a refusal names."""
SHOWN_MAX: Final = 3
"""Of them, those that are in its sentence."""
TimestampRange: TypeAlias = tuple[int, int]
ANY_TIMESTAMP: Final = (-(1 << 63), (1 << 63) - 1)


def validated(
    batch: bytes,
    *,
    requires_keys: bool,
    timestamp_range: TimestampRange | None = None,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """A batch, whose header the broker has checked, as it is to be appended; ApiError if it may not be.

    With a range of timestamps these are looked at too, and a header that does not say how old its youngest record is
    is corrected: retention, the time index and whoever looks for a time believe it. Kafka's leader does the same.
    """
    header = read_header(batch)
    try:
        body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], size_max)
    except ApiError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, error.message) from None
    max_timestamp = _check_body(body, header, requires_keys, timestamp_range or ANY_TIMESTAMP)
    if timestamp_range is None or max_timestamp == header.max_timestamp:
        return batch
    corrected = bytearray(batch)
    set_max_timestamp(memoryview(corrected), max_timestamp)
    return bytes(corrected)


def recompress(batch: bytes, codec: int, level: int | None, batch_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The same records in another codec. Offsets, timestamps and the producer's numbers stay, the checksum is new.

    Raises ApiError if the batch does not hold what it claims: a broker that compresses answers for what is inside. Also
    if it would get longer than `batch_bytes_max`.
    """
    header = read_header(batch)
    room = batch_bytes_max - HEADER_BYTES if codec == Codec.NONE else DECOMPRESSED_BYTES_MAX
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], min(room, DECOMPRESSED_BYTES_MAX))
    _check_body(body, header, requires_keys=False, timestamp_range=ANY_TIMESTAMP)
    built = bytearray(batch[:HEADER_BYTES])
    built += compress(codec, body, level)
    if len(built) > batch_bytes_max:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"in the codec {Codec(codec).name.lower()} the batch has {len(built)} bytes, "
            f"max.message.bytes is {batch_bytes_max}",
        )
    _LENGTH.pack_into(built, _LENGTH_POSITION, len(built) - LENGTH_PREFIX_BYTES)
    _ATTRIBUTES.pack_into(built, CRC_START, header.attributes & ~CODEC_MASK | codec)
    _CRC.pack_into(built, _CRC_POSITION, crc32c(memoryview(built)[CRC_START:]))
    return bytes(built)


def _check_body(body: bytes, header: BatchHeader, requires_keys: bool, timestamp_range: TimestampRange) -> int:
    """The largest timestamp of the records; raises if they are not what the header says, or some of them refused."""
    refused = np.empty((Refused.COUNT, RECORD_ERRORS_MAX), np.int64)
    code, record, position, refused_count, max_timestamp = check_records(
        np.frombuffer(body, np.uint8),
        0,
        len(body),
        header.record_count,
        requires_keys,
        header.base_timestamp,
        *timestamp_range,
        refused,
    )
    if refused_count:
        named = refused[:, :refused_count].T.tolist()
        raise _refusal(BodyFault(code), named, refused_count, header.record_count, timestamp_range)
    if code == BodyFault.NONE:
        return int(max_timestamp)
    reason = explain_fault(code, position)
    if code in (BodyFault.COUNT, BodyFault.BODY_NOT_FILLED):
        raise ApiError(ErrorCode.INVALID_RECORD, reason)
    raise InvalidRecordsError(ErrorCode.INVALID_RECORD, f"record {record}: {reason}", [(record, reason)])


def _refusal(
    worst: BodyFault, named: list[list[int]], refused_count: int, record_count: int, timestamp_range: TimestampRange
) -> InvalidRecordsError:
    """For records that are sound, but nothing for their topic. One that is of the wrong time decides on the code."""
    code = ErrorCode.INVALID_TIMESTAMP if worst == BodyFault.TIMESTAMP_RANGE else ErrorCode.INVALID_RECORD
    errors = [(record, _objection(fault, timestamp, timestamp_range)) for record, fault, timestamp in named]
    shown = "; ".join([f"record {record}: {reason}" for record, reason in errors[:SHOWN_MAX]])
    more = "; ..." if refused_count > SHOWN_MAX else ""
    message = f"{refused_count} of the batch's {record_count} records cannot be stored: {shown}{more}"
    return InvalidRecordsError(code, message, errors)


def _objection(fault: int, timestamp: int, timestamp_range: TimestampRange) -> str:
    if fault == BodyFault.KEY_MISSING:
        return "Compacted topic cannot accept message without key"
    earliest, latest = timestamp_range
    return (
        f"its timestamp {timestamp} is out of the range from {earliest} to {latest} that "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow"
    )
