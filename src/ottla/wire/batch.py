"""The record batch, as the broker sees it: a header of 61 bytes in front of bytes that are none of its business.

Theory of operation. A batch (format version 2, the only one that current clients write) is

    base offset i64 | length i32 | leader epoch i32 | magic i8 | crc u32 | attributes i16 | last offset delta i32 |
    base timestamp i64 | max timestamp i64 | producer id i64 | producer epoch i16 | base sequence i32 | count i32

and then the records. `length` counts what follows it, and the CRC covers everything from `attributes` on. So a leader
may write the offset and its epoch into a batch without touching the checksum (`assign`), and a broker that stamps its
own time must not forget to make a new one (`set_log_append_time`).

`check` stands in front of the log: what passes it is stored, replicated and handed to consumers as it is. It makes one
test of everything that must hold and leaves the search for the reason to `_refusal`, off the hot path.

Functions that take "exactly one batch" rely on the buffer's end being the batch's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.wire.crc import crc32c

HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and length: what a reader needs to know where the batch ends."""
CRC_START: Final = 21
MAGIC: Final = 2
RECORD_BYTES_MIN: Final = 7
"""A record of one-byte fields with neither key, value nor headers."""

CODEC_MASK: Final = 0x07
CODEC_MAX: Final = 4
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NOT_FOR_PRODUCERS: Final = LOG_APPEND_TIME_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES

_HEADER: Final = Struct(">qiibIhiqqqhii")
_UNCOVERED: Final = Struct(">qiibI")
_COVERED: Final = Struct(">hiqqqhii")
"""The header up to its checksum, and what the checksum covers of it."""
_ASSIGNED: Final = Struct(">qii")
_CRC_TO_MAX_TIMESTAMP: Final = Struct(">Ihiqq")
_CRC: Final = Struct(">I")

_unpack_header = _HEADER.unpack_from
assign = _ASSIGNED.pack_into
"""(batch, 0, base offset, length, leader epoch): give a batch its place in the log; no checksum covers these."""

_OFFSET_BYTES: Final = 8
_NO_OFFSET: Final = bytes(_OFFSET_BYTES)


def unassign(batch: memoryview | bytearray) -> None:
    """Take the offset of a batch back that was given a place and not written: a producer's batch has none."""
    batch[:_OFFSET_BYTES] = _NO_OFFSET


class BatchHeader(NamedTuple):
    """The fields in front of the records, in their order on the wire."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """The number of the compression codec, see `wire.compression.Codec`."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """True if every record's time is `max_timestamp`, the broker's own."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon(self) -> int | None:
        """The time after which compaction may drop this batch's tombstones and markers, once it has been set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number: these wrap to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return LENGTH_PREFIX_BYTES + self.length


# What _make does, without a Python frame.
_new_header: Callable[[tuple[int, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)


def read_header(buf: bytes | bytearray | memoryview, pos: int = 0) -> BatchHeader:
    """The header at `pos`, unchecked; there must be 61 bytes."""
    return _new_header(_unpack_header(buf, pos))


def crc_matches(batch: memoryview, header: BatchHeader) -> bool:
    """Whether exactly one batch is what its checksum says."""
    return crc32c(batch[CRC_START:]) == header.crc


def check(batch: memoryview) -> BatchHeader:
    """The header of exactly one batch from a producer, if it may be stored as it is; raises ApiError if not."""
    size = len(batch)
    if size < HEADER_BYTES:
        raise _too_short(size)
    fields = _unpack_header(batch)
    _, length, _, magic, crc, attributes, last_delta, _, _, producer_id, producer_epoch, sequence, count = fields
    if (
        length + LENGTH_PREFIX_BYTES == size
        and magic == MAGIC
        and fields[0] == 0
        and count > 0
        and last_delta == count - 1
        and not attributes & NOT_FOR_PRODUCERS
        and (attributes & CODEC_MASK or count * RECORD_BYTES_MIN <= size - HEADER_BYTES)
        and attributes & CODEC_MASK <= CODEC_MAX
        and (producer_id < 0 or (sequence >= 0 and producer_epoch >= 0))
        and crc32c(batch[CRC_START:]) == crc
    ):
        return _new_header(fields)
    raise _refusal(_new_header(fields), batch)


def assign_run(
    batches: bytearray | list[memoryview],
    headers: Sequence[BatchHeader],
    last_offsets: Sequence[int],
    leader_epoch: int,
) -> None:
    """`assign` for batches that lie one behind the other, or each in a place of its own."""
    if isinstance(batches, bytearray):
        position = 0
        for header, last_offset in zip(headers, last_offsets, strict=True):
            length = header[1]
            assign(batches, position, last_offset - header[6], length, leader_epoch)
            position += LENGTH_PREFIX_BYTES + length
        return
    for batch, header, last_offset in zip(batches, headers, last_offsets, strict=True):
        assign(batch, 0, last_offset - header[6], header[1], leader_epoch)


def build(
    body: bytes | bytearray | memoryview,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """The batch whose records, encoded and compressed as `attributes` say, are `body`."""
    covered = _COVERED.pack(
        attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence,
        record_count,
    )  # fmt: skip
    length = _LENGTH_MIN + len(body)
    batch = bytearray(_UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc32c(body, crc32c(covered))))
    batch += covered
    batch += body
    return batch


def set_log_append_time(batch: memoryview, now_ms: int) -> None:
    """Stamp exactly one batch with the broker's time, and make its checksum anew."""
    _, attributes, last_delta, base_timestamp, _ = _CRC_TO_MAX_TIMESTAMP.unpack_from(batch, CRC_START - 4)
    stamped = attributes | LOG_APPEND_TIME_BIT
    _CRC_TO_MAX_TIMESTAMP.pack_into(batch, CRC_START - 4, 0, stamped, last_delta, base_timestamp, now_ms)
    _CRC.pack_into(batch, CRC_START - 4, crc32c(batch[CRC_START:]))


def set_max_timestamp(batch: memoryview, max_timestamp: int) -> None:
    """Correct what exactly one batch claims about its youngest record, and make its checksum anew."""
    _, attributes, last_delta, base_timestamp, _ = _CRC_TO_MAX_TIMESTAMP.unpack_from(batch, CRC_START - 4)
    _CRC_TO_MAX_TIMESTAMP.pack_into(batch, CRC_START - 4, 0, attributes, last_delta, base_timestamp, max_timestamp)
    _CRC.pack_into(batch, CRC_START - 4, crc32c(batch[CRC_START:]))


def iterate(buf: bytes | bytearray | memoryview, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from `pos` on; a batch cut off at the end is left out.

    A fetched range may end anywhere. Headers are not checked but for what walking needs: a length that cannot be and a
    format that is not ours raise CORRUPT_MESSAGE.
    """
    end = len(buf)
    while end - pos >= HEADER_BYTES:
        header = _new_header(_unpack_header(buf, pos))
        if header.length < _LENGTH_MIN or header.magic != MAGIC:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"no record batch at byte {pos}: length {header.length}, magic {header.magic}",
            )
        if header.size > end - pos:
            return
        yield pos, header
        pos += header.size


def _too_short(size: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD,
        f"a produce request needs one record batch per partition, which has at least {HEADER_BYTES} bytes, not {size}",
    )


def _refusal(header: BatchHeader, batch: memoryview) -> ApiError:
    """Why `check` said no: first what makes the rest unreadable, then what the batch claims about itself."""
    if header.magic != MAGIC:
        return _wrong_magic(header.magic)
    if header.length < _LENGTH_MIN:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch cannot have {header.size} bytes")
    if header.size > len(batch):
        return ApiError(ErrorCode.INVALID_RECORD, f"of the batch's {header.size} bytes {len(batch)} were sent")
    if header.size < len(batch):
        return ApiError(ErrorCode.INVALID_RECORD, "more than one record batch for a partition in one produce request")
    if not crc_matches(batch, header):
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch does not match its CRC-32C {header.crc:#010x}")
    return _wrong_claim(header)


def _wrong_magic(magic: int) -> ApiError:
    if magic in (0, 1):
        return ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {magic} is no longer supported, use format 2"
        )
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"unknown message format {magic}")


def _wrong_claim(header: BatchHeader) -> ApiError:
    invalid = ErrorCode.INVALID_RECORD
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        return ApiError(
            invalid, f"{header.record_count} records do not fit a last offset delta of {header.last_offset_delta}"
        )
    if header.base_offset != 0:
        return ApiError(invalid, f"a producer's batch starts at offset 0, this one at {header.base_offset}")
    if header.is_control:
        return ApiError(invalid, "clients may not write control records")
    if header.log_append_time:
        return ApiError(ErrorCode.INVALID_TIMESTAMP, "a producer may not claim LogAppendTime, the broker sets it")
    if header.delete_horizon is not None:
        return ApiError(invalid, "a producer may not set the delete horizon")
    if header.codec > CODEC_MAX:
        return ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {header.codec}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return ApiError(
            invalid,
            f"producer id {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}",
        )
    return ApiError(invalid, f"{header.record_count} records do not fit into {header.size - HEADER_BYTES} bytes")
