"""One batch from a producer, looked into: full validation and another codec. For the record worker only.

The broker checks headers; this checks that the records are what the header says, by `compiled.records.check_records`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import CODEC_MASK, CRC_START, HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, read_header
from ottla.wire.compiled.records import BodyFault, check_records, explain
from ottla.wire.compression import compress, decompress
from ottla.wire.crc import crc32c
from ottla.wire.records import DECOMPRESSED_BYTES_MAX

_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 17
_ATTRIBUTES: Final = Struct(">h")


def refusal_of(batch: bytes, *, requires_keys: bool, size_max: int = DECOMPRESSED_BYTES_MAX) -> str | None:
    """Why a batch, whose header the broker has checked, may not be appended; None if it may."""
    header = read_header(batch)
    try:
        body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], size_max)
    except ApiError as error:
        return error.message
    return _refusal_of_body(body, header, requires_keys=requires_keys)


def recompress(batch: bytes, codec: int, level: int | None, *, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The same records in another codec. Offsets, timestamps and the producer's numbers stay, the checksum is new.

    Raises ApiError if the batch does not hold what it claims: a broker that compresses answers for what is inside.
    """
    header = read_header(batch)
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], size_max)
    refusal = _refusal_of_body(body, header, requires_keys=False)
    if refusal is not None:
        raise ApiError(ErrorCode.INVALID_RECORD, refusal)
    built = bytearray(batch[:HEADER_BYTES])
    built += compress(codec, body, level)
    _LENGTH.pack_into(built, _LENGTH_POSITION, len(built) - LENGTH_PREFIX_BYTES)
    _ATTRIBUTES.pack_into(built, CRC_START, header.attributes & ~CODEC_MASK | codec)
    _CRC.pack_into(built, _CRC_POSITION, crc32c(memoryview(built)[CRC_START:]))
    return bytes(built)


def _refusal_of_body(body: bytes, header: BatchHeader, *, requires_keys: bool) -> str | None:
    verdict = check_records(np.frombuffer(body, np.uint8), 0, len(body), header.record_count, requires_keys)
    return None if verdict[0] == BodyFault.NONE else explain(*verdict)
