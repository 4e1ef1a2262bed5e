"""The producer snapshot file, `<offset>.snapshot`, in Kafka's format (version 1).

    version i16 | CRC-32C of the rest u32 | count i32 | per producer: id i64, epoch i16, last sequence i32, last
    offset i64, offset delta i32, timestamp i64, coordinator epoch i32, first offset of the open transaction i64

It says what a log knew of its producers when its end was `offset`. In Kafka only the last batch of each is in it: there
a producer with several requests under way, whose answers are lost in a restart, is told that its numbers are out of
order. So all batches that are remembered follow here, which Kafka reads over:

    per batch: number of its producer above i32, first and last sequence i32, first and last offset i64, timestamp i64

The file is written in one go without a sync, and believed only if its checksum is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.errors import OttlaError
from ottla.model.limits import PRODUCER_BATCHES_REMEMBERED
from ottla.wire.crc import crc32c

VERSION: Final = 1

_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_BATCH: Final = Struct(">iiiqqq")

SnapshotBatch = tuple[int, int, int, int, int]
"""First and last sequence, first and last offset, timestamp."""


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
    batches: tuple[SnapshotBatch, ...] = ()
    """The last ones, oldest first. Kafka has none of them."""


def encode(entries: Iterable[SnapshotEntry]) -> bytes:
    """The bytes of a snapshot file."""
    packed, batches = [], []
    for number, entry in enumerate(entries):
        packed.append(_ENTRY.pack(*entry[:-1]))
        batches += [_BATCH.pack(number, *batch) for batch in entry.batches]
    body = _COUNT.pack(len(packed)) + b"".join(packed) + b"".join(batches)
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
    end = _COUNT.size + count * _ENTRY.size
    if count < 0 or len(body) < end or (len(body) - end) % _BATCH.size:
        raise CorruptSnapshotError(f"{count} producers do not fill {len(body)} bytes")
    entries = [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size : end])]
    batches: dict[int, list[SnapshotBatch]] = {}
    for number, *batch in _BATCH.iter_unpack(body[end:]):
        of_producer = batches.setdefault(number, [])
        if not 0 <= number < count or len(of_producer) >= PRODUCER_BATCHES_REMEMBERED:
            raise CorruptSnapshotError(f"a batch too many of producer {number} of {count}")
        of_producer.append((batch[0], batch[1], batch[2], batch[3], batch[4]))
    for number, of_producer in batches.items():
        entries[number] = entries[number]._replace(batches=tuple(of_producer))
    return entries
