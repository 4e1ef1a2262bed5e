"""A committed offset, and the small form in which a store keeps very many of them.

Theory of operation. An offset is kept as one `bytes` object of 24 bytes and its metadata: what a dict with millions of
them costs is then the dict, and the garbage collector has nothing to visit. Ids of topics repeat and are kept as
numbers. The form lives in memory only: nothing is ever written in it, so it may change at any time.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from ottla.core.groups.records import OffsetRecord
from ottla.model.ids import NO_TIMESTAMP, ZERO_UUID


class CommittedOffset(NamedTuple):
    """Up to where a group has consumed a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    """-1 unless an old client asked for a retention time of its own."""
    topic_id: UUID


_PLAIN: Final = Struct("<qqii")
_EXPIRING: Final = Struct("<qqiiq")
pack_plain: Final = _PLAIN.pack
"""(offset, commit timestamp, leader epoch, number of the topic id): an offset without metadata and expiry."""
_TIMES: Final = Struct("<8xq4xi")
_EXPIRY: Final = Struct("<q")


class PackedOffsets:
    """Packs committed offsets and unpacks them. A topic's number is negative where a time of expiry follows it."""

    __slots__ = ("_numbers", "_topic_ids")

    def __init__(self) -> None:
        self._topic_ids = [ZERO_UUID]
        self._numbers = {ZERO_UUID.int: 0}

    def pack(self, record: OffsetRecord) -> bytes:
        _, _, _, offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id = record
        number = self._numbers.get(topic_id.int)
        if number is None:
            number = self.number_of(topic_id)
        if expire_timestamp == NO_TIMESTAMP:
            packed = pack_plain(offset, commit_timestamp, leader_epoch, number)
        else:
            packed = _EXPIRING.pack(offset, commit_timestamp, leader_epoch, ~number, expire_timestamp)
        return packed + metadata.encode() if metadata else packed

    def unpack(self, packed: bytes) -> CommittedOffset:
        offset, commit_timestamp, leader_epoch, number = _PLAIN.unpack_from(packed)
        expire_timestamp, end = NO_TIMESTAMP, _PLAIN.size
        if number < 0:
            (expire_timestamp,) = _EXPIRY.unpack_from(packed, end)
            number, end = ~number, _EXPIRING.size
        metadata = packed[end:].decode() if len(packed) > end else ""
        return CommittedOffset(
            offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, self._topic_ids[number]
        )

    def topic_id(self, packed: bytes) -> UUID:
        """The id that the topic had when the offset was committed."""
        _, number = _TIMES.unpack_from(packed)
        found: UUID = self._topic_ids[number if number >= 0 else ~number]
        return found

    def number_of(self, topic_id: UUID) -> int:
        """What stands for the id in packed offsets."""
        number = self._numbers.get(topic_id.int)
        if number is None:
            number = self._numbers[topic_id.int] = len(self._topic_ids)
            self._topic_ids.append(topic_id)
        return number


def times(packed: bytes) -> tuple[int, int]:
    """When the offset was committed, and when it expires or -1: without unpacking the rest."""
    commit_timestamp, number = _TIMES.unpack_from(packed)
    if number >= 0:
        return commit_timestamp, NO_TIMESTAMP
    return commit_timestamp, _EXPIRY.unpack_from(packed, _PLAIN.size)[0]
