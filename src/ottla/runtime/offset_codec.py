"""Committed offsets as keys and values in `__consumer_offsets`, and back: the one record that has to be quick.

A start reads as many of these as the log holds, and every commit writes one for each partition. So the versions of the
value that are common (4, and 3, which Kafka wrote before 4.1) are packed and unpacked here by hand, and the declared
messages are asked only about the rest: version 1, which says when to forget an offset, old ones, long metadata.

What must stay true: the quick way gives what the declared messages give, and says None where it does not know.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from ottla.core.groups.records import OffsetRecord, offset_record
from ottla.model.ids import NO_OFFSET, ZERO_UUID
from ottla.runtime.coordinator_log import encode_first
from ottla.wire.messages.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.schema import encode
from ottla.wire.schema_source import uuid_of

OFFSET_COMMIT: Final = 1
"""The type that the key of an offset begins with."""

_LONG_METADATA_BYTES: Final = 127
"""From here on the length of the metadata takes a second byte in version 4."""

REMEMBERED_MAX: Final = 1000
REMEMBERED_KEY_BYTES_MAX: Final = 600
"""Names and ids that were decoded last are kept: as many as these, and none of very long keys."""
ENDS_MAX: Final = 4096
"""How many records' beginnings and ends are kept for the next commit of the same group for the same partition."""

_names: Final[dict[bytes, tuple[str, str]]] = {}
_topic_ids: Final[dict[bytes, UUID]] = {}
_ends: Final[dict[tuple[str, str, int], tuple[UUID, bytes, bytes]]] = {}

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_type_and_length = struct.Struct(">hh")
_value_3_start = struct.Struct(">hqih")
_value_3_end = struct.Struct(">q")
_value_4_start = struct.Struct(">hqiB")
_value_4_end = struct.Struct(">qB")
_value_4_end_with_id = struct.Struct(">qBBB16s")
_value_4_plain = struct.Struct(">hqiBqB")
plain_value_with_id = struct.Struct(">hqiBqBBB16s")
_plain_numbers = struct.Struct(">hqiBq").pack
_plain_numbers_size: Final = struct.calcsize(">hqiBq")
"""The part of it that is another one with each commit."""
PLAIN_NUMBERS_BEFORE_END: Final = plain_value_with_id.size - 2 + 1
"""Where these begin behind the version, counted from the end of a record that `encode_plain_offset` has made."""


def encode_offset(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """The key and the value; struct.error if a name is longer than a key can hold."""
    group, topic = record.group_id.encode(), record.topic.encode()
    key = b"".join(
        (
            _type_and_length.pack(OFFSET_COMMIT, len(group)),
            group,
            _int16.pack(len(topic)),
            topic,
            _int32.pack(record.partition),
        )
    )
    return key, None if record.offset == NO_OFFSET else _encode_value(record)


def encode_plain_offset(record: OffsetRecord) -> bytes | None:
    """A whole record of a batch that has no other; None unless it is of the most common kind.

    That is an offset with the topic's id and without metadata. Its value always has the same length, so all before and
    after the few numbers of the value depends on the key and the topic alone, and is kept. struct.error if a name is
    longer than a key can hold.
    """
    group_id, topic, partition, offset, leader_epoch, metadata, timestamp, expire_timestamp, topic_id = record
    if metadata or expire_timestamp != -1 or offset == NO_OFFSET or topic_id is ZERO_UUID:
        return None
    known = _ends.get((group_id, topic, partition))
    if known is None or known[0] is not topic_id:
        known = _record_ends(record)
        if known is None:
            return None
    return known[1] + _plain_numbers(4, offset, leader_epoch, 1, timestamp) + known[2]


def _record_ends(record: OffsetRecord) -> tuple[UUID, bytes, bytes] | None:
    """What stands around the numbers of a record's value, and the topic's id that it is right for."""
    if record.topic_id == ZERO_UUID:
        return None
    key, value = encode_offset(record)
    encoded = encode_first(key, value)
    numbers_at = len(encoded) - 1 - plain_value_with_id.size
    ends = record.topic_id, encoded[:numbers_at], encoded[numbers_at + _plain_numbers_size :]
    if len(key) <= REMEMBERED_KEY_BYTES_MAX:
        if len(_ends) >= ENDS_MAX:
            _ends.clear()
        _ends[record[:3]] = ends
    return ends


def _encode_value(record: OffsetRecord) -> bytes:
    _, _, _, offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id = record
    text = metadata.encode()
    if expire_timestamp != -1 or len(text) >= _LONG_METADATA_BYTES:
        return _encode_rare_value(record)
    if topic_id is ZERO_UUID or topic_id == ZERO_UUID:
        if not text:
            return _value_4_plain.pack(4, offset, leader_epoch, 1, commit_timestamp, 0)
        end = _value_4_end.pack(commit_timestamp, 0)
    else:
        if not text:
            return plain_value_with_id.pack(4, offset, leader_epoch, 1, commit_timestamp, 1, 0, 16, topic_id.bytes)
        end = _value_4_end_with_id.pack(commit_timestamp, 1, 0, 16, topic_id.bytes)
    return _value_4_start.pack(4, offset, leader_epoch, len(text) + 1) + text + end


def _encode_rare_value(record: OffsetRecord) -> bytes:
    """Any value; version 1 is the only one that can say when to forget the offset."""
    version = 4 if record.expire_timestamp == -1 else 1
    value = OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp,
        expire_timestamp=record.expire_timestamp,
        topic_id=record.topic_id,
    )
    return encode(value, version, _int16.pack(version))


def decode_offset(key: bytes, value: bytes | None) -> OffsetRecord | None:
    """The record of a key of type OFFSET_COMMIT; None unless the value is of a common kind.

    What is damaged gives None too, or raises struct.error, IndexError or UnicodeDecodeError.
    """
    names = _names.get(key[:-4]) or _read_names(key)
    if names is None:
        return None
    group_id, topic = names
    (partition,) = _int32.unpack_from(key, len(key) - 4)
    if value is None:
        return OffsetRecord(group_id, topic, partition, NO_OFFSET)
    if len(value) == plain_value_with_id.size:
        version, offset, epoch, one, timestamp, tags, tag, size, raw_id = plain_value_with_id.unpack(value)
        if version == 4 and one == 1 and tags == 1 and tag == 0 and size == 16:
            topic_id = _topic_ids.get(raw_id) or _read_topic_id(raw_id)
            return offset_record((group_id, topic, partition, offset, epoch, "", timestamp, -1, topic_id))
    if value[1] == 4:
        return _decode_value_4(group_id, topic, partition, value)
    if value[1] == 3:
        return _decode_value_3(group_id, topic, partition, value)
    return None


def _read_names(key: bytes) -> tuple[str, str] | None:
    """Group and topic of a key; those of very many keys in a row are the same."""
    _, size = _type_and_length.unpack_from(key)
    topic_at = 6 + size
    if size < 0:
        return None
    group_id = key[4 : topic_at - 2].decode()
    (size,) = _int16.unpack_from(key, topic_at - 2)
    partition_at = topic_at + size
    if size < 0 or len(key) != partition_at + 4:
        return None
    names = group_id, key[topic_at:partition_at].decode()
    if len(_names) >= REMEMBERED_MAX:
        _names.clear()
    if len(key) <= REMEMBERED_KEY_BYTES_MAX:
        _names[key[:-4]] = names
    return names


def _read_topic_id(raw_id: bytes) -> UUID:
    if len(_topic_ids) >= REMEMBERED_MAX:
        _topic_ids.clear()
    topic_id = _topic_ids[raw_id] = uuid_of(raw_id)
    return topic_id


def _decode_value_4(group_id: str, topic: str, partition: int, value: bytes) -> OffsetRecord | None:
    version, offset, leader_epoch, size = _value_4_start.unpack_from(value)
    end = 14 + size
    commit_timestamp, tags = _value_4_end.unpack_from(value, end)
    if version != 4 or not 0 < size <= _LONG_METADATA_BYTES:
        return None
    metadata = value[15:end].decode() if size > 1 else ""
    behind = len(value) - end - 9
    if tags == 0 and behind == 0:
        return OffsetRecord(group_id, topic, partition, offset, leader_epoch, metadata, commit_timestamp)
    if tags == 1 and behind == 18 and value[end + 9] == 0 and value[end + 10] == 16:
        topic_id = uuid_of(value[end + 11 :])
        return OffsetRecord(group_id, topic, partition, offset, leader_epoch, metadata, commit_timestamp, -1, topic_id)
    return None


def _decode_value_3(group_id: str, topic: str, partition: int, value: bytes) -> OffsetRecord | None:
    version, offset, leader_epoch, size = _value_3_start.unpack_from(value)
    end = 16 + size
    if version != 3 or size < 0 or len(value) != end + 8:
        return None
    metadata = value[16:end].decode() if size else ""
    (commit_timestamp,) = _value_3_end.unpack_from(value, end)
    return OffsetRecord(group_id, topic, partition, offset, leader_epoch, metadata, commit_timestamp)


def offset_of(
    key: OffsetCommitKey | LegacyOffsetCommitKey, value: OffsetCommitValue | LegacyOffsetCommitValue | None
) -> OffsetRecord:
    """The record of messages of any version."""
    if value is None:
        return OffsetRecord(key.group, key.topic, key.partition, NO_OFFSET)
    record = OffsetRecord(
        key.group,
        key.topic,
        key.partition,
        value.offset,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp,
    )
    if isinstance(value, LegacyOffsetCommitValue):
        return record
    return record._replace(
        leader_epoch=value.leader_epoch, expire_timestamp=value.expire_timestamp, topic_id=value.topic_id
    )
