"""The producer snapshot file, `<offset>.snapshot`, in Kafka's format (version 1).

    version i16 | CRC-32C of the rest u32 | count i32 | per producer: id i64, epoch i16, last sequence i32, last
    offset i64, offset delta i32, timestamp i64, coordinator epoch i32, first offset of the open transaction i64

It says what a log knew of its producers when its end was `offset`. Only the last batch of each is in it, as in Kafka.
The file is written in one go without a sync, and believed only if its checksum is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.errors import OttlaError
from ottla.wire.crc import crc32c

VERSION: Final = 1

_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


class CorruptSnapshotError(OttlaError):
    """A snapshot file that cannot be believed. An older one, or the log itself, serves instead."""


class SnapshotEntry(NamedTuple):
    """One producer; -1 stands for "none" in every field."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode(entries: Iterable[SnapshotEntry]) -> bytes:
    """The bytes of a snapshot file."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[SnapshotEntry]:
    """The inverse of `encode`; raises CorruptSnapshotError on anything else."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are no producer snapshot")
    version, crc = _PREFIX.unpack_from(data)
    body = memoryview(data)[_PREFIX.size :]
    if version != VERSION or crc32c(body) != crc:
        raise CorruptSnapshotError(f"version {version}, or a CRC-32C other than {crc:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} producers do not fill {len(body)} bytes")
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]
