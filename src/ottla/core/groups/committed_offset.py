"""A committed offset, and the two packed forms in which a store keeps very many of them.

Theory of operation. An offset is kept as one `bytes` object: what a dict with millions of them costs is then the dict,
and the garbage collector has nothing to visit. The forms live in memory only: nothing is ever written in them, so they
may change at any time.

- The small form is 27 bytes and the metadata: that is what a commit leaves. Ids of topics repeat and are numbers in it.
- The long form is 42 bytes and the metadata, with the topic's id: that is how an offset mostly comes from a log, where
  a million of them are kept as they come. Nobody looks inside before they are asked for.

    small   2 zeros         offset 8   epoch 4   0 1                 commit time 8   number 4   [expiry 8]   metadata
    long    version 4 in 2  offset 8   epoch 4   1 + its length 1    metadata        commit time 8   1, 0, 16   id 16

What an editor must keep true: the byte at FORM_AT tells the forms apart, and `is_long` refuses whatever is not exactly
the long form, because nothing is checked later.
"""

from __future__ import annotations

from collections.abc import Sequence
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


_PLAIN: Final = Struct(">2xqixqi")
_EXPIRING: Final = Struct(">2xqixqiq")
_PLAIN_BYTES: Final = _PLAIN.size
_unpack_plain = _PLAIN.unpack_from
pack_plain: Final = _PLAIN.pack
"""(offset, leader epoch, commit timestamp, number of the topic id): an offset without metadata and expiry."""
_TIMES: Final = Struct(">15xqi")
_INT64: Final = Struct(">q")

FORM_AT: Final = 14
"""Where a 0 stands in the small form, and in the long one what is never 0."""
LONG_BYTES: Final = 42
_LONG_METADATA_BYTES_MAX: Final = 126
_LONG_START: Final = b"\x00\x04\x00"
"""The version, and the first byte of an offset that is neither negative nor beyond all bounds."""
_ID_TAG: Final = b"\x01\x00\x10"
"""In front of the topic's id."""
_ID_TAG_AT: Final = 23
"""Where that is without metadata."""
_ID_BYTES: Final = 16
_unpack_long_start = Struct(">2xqiB").unpack_from
_unpack_long = Struct(">2xqixq3x16s").unpack
_LONG_COLUMNS: Final = tuple(
    (at + number, bytes([byte]))
    for at, told in ((0, _LONG_START), (FORM_AT, b"\x01"), (_ID_TAG_AT, _ID_TAG))
    for number, byte in enumerate(told)
)
"""The bytes that all offsets in the long form without metadata have in common, and where."""


class PackedOffsets:
    """Packs committed offsets and unpacks them. A topic's number is negative where a time of expiry follows it."""

    __slots__ = ("_by_bytes", "_numbers", "_topic_ids")

    def __init__(self) -> None:
        self._topic_ids = [ZERO_UUID]
        self._numbers = {ZERO_UUID.int: 0}
        self._by_bytes: dict[bytes, UUID] = {}
        """The ids of topics that were asked for in the long form."""

    def pack(self, record: OffsetRecord) -> bytes:
        _, _, _, offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id = record
        number = self._numbers.get(topic_id.int)
        if number is None:
            number = self.number_of(topic_id)
        if expire_timestamp == NO_TIMESTAMP:
            packed = pack_plain(offset, leader_epoch, commit_timestamp, number)
        else:
            packed = _EXPIRING.pack(offset, leader_epoch, commit_timestamp, ~number, expire_timestamp)
        return packed + metadata.encode() if metadata else packed

    def unpack(self, packed: bytes) -> CommittedOffset:
        if len(packed) == _PLAIN_BYTES:
            offset, leader_epoch, commit_timestamp, number = _unpack_plain(packed)
            return CommittedOffset(offset, leader_epoch, "", commit_timestamp, NO_TIMESTAMP, self._topic_ids[number])
        return self._unpack_long(packed) if packed[FORM_AT] else self._unpack_rare(packed)

    def _unpack_rare(self, packed: bytes) -> CommittedOffset:
        """The small form with metadata, a time of expiry or both."""
        offset, leader_epoch, commit_timestamp, number = _unpack_plain(packed)
        expire_timestamp, end = NO_TIMESTAMP, _PLAIN_BYTES
        if number < 0:
            (expire_timestamp,) = _INT64.unpack_from(packed, end)
            number, end = ~number, _EXPIRING.size
        return CommittedOffset(
            offset, leader_epoch, packed[end:].decode(), commit_timestamp, expire_timestamp, self._topic_ids[number]
        )

    def _unpack_long(self, packed: bytes) -> CommittedOffset:
        metadata = ""
        if len(packed) == LONG_BYTES:
            offset, leader_epoch, commit_timestamp, raw_id = _unpack_long(packed)
        else:
            offset, leader_epoch, form = _unpack_long_start(packed)
            end, raw_id = FORM_AT + form, packed[-_ID_BYTES:]
            metadata = packed[FORM_AT + 1 : end].decode()
            (commit_timestamp,) = _INT64.unpack_from(packed, end)
        topic_id = self._by_bytes.get(raw_id) or self._read_id(raw_id)
        return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp, NO_TIMESTAMP, topic_id)

    def topic_id(self, packed: bytes) -> UUID:
        """The id that the topic had when the offset was committed."""
        if packed[FORM_AT]:
            raw_id = packed[-_ID_BYTES:]
            return self._by_bytes.get(raw_id) or self._read_id(raw_id)
        _, number = _TIMES.unpack_from(packed)
        found: UUID = self._topic_ids[number if number >= 0 else ~number]
        return found

    def number_of(self, topic_id: UUID) -> int:
        """What stands for the id in the small form."""
        number = self._numbers.get(topic_id.int)
        if number is None:
            number = self._numbers[topic_id.int] = len(self._topic_ids)
            self._topic_ids.append(topic_id)
        return number

    def _read_id(self, raw_id: bytes) -> UUID:
        topic_id = self._by_bytes[raw_id] = self._topic_ids[self.number_of(UUID(bytes=raw_id))]
        return topic_id


def times(packed: bytes) -> tuple[int, int]:
    """When the offset was committed, and when it expires or -1: without unpacking the rest."""
    form = packed[FORM_AT]
    if form:
        return _INT64.unpack_from(packed, FORM_AT + form)[0], NO_TIMESTAMP
    commit_timestamp, number = _TIMES.unpack_from(packed)
    if number >= 0:
        return commit_timestamp, NO_TIMESTAMP
    return commit_timestamp, _INT64.unpack_from(packed, _PLAIN_BYTES)[0]


def is_long(data: bytes) -> bool:
    """Whether the bytes are an offset in the long form."""
    metadata_bytes = len(data) - LONG_BYTES
    if (
        not 0 <= metadata_bytes <= _LONG_METADATA_BYTES_MAX
        or data[FORM_AT] != metadata_bytes + 1
        or not data.startswith(_LONG_START)
        or not data.startswith(_ID_TAG, _ID_TAG_AT + metadata_bytes)
    ):
        return False
    return not metadata_bytes or _is_text(data[FORM_AT + 1 : FORM_AT + 1 + metadata_bytes])


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def are_long(values: Sequence[bytes]) -> bool:
    """Whether all of these are offsets in the long form without metadata: looked at all at once, byte by byte."""
    if set(map(len, values)) != {LONG_BYTES}:
        return False
    joined, count = b"".join(values), len(values)
    return all(joined[at::LONG_BYTES] == byte * count for at, byte in _LONG_COLUMNS)
