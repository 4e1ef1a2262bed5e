"""Changes of partitions as bytes, and back, without a message in between.

When a broker fails, thousands of them are written at once, read by every node, and everybody waits. So this one record
has a codec of its own for the common case: lists so short that their sizes take one byte. It writes and reads the very
bytes that the declared message does; None says that the message has to do it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final
from uuid import UUID

from ottla.core.controller.records import PartitionChangeRecord

PARTITION_CHANGE: Final = b"\x01\x05\x02"
"""The frame's version, the record's type, and its version."""
_MEMBERS_MAX: Final = 7
"""More directories do not fit where a size takes one byte."""
_HEAD: Final = Struct(">i16s")
_LEADER: Final = Struct(">BBi")
_BODY_AT: Final = len(PARTITION_CHANGE)
_TAGS_AT: Final = _BODY_AT + _HEAD.size
_IDS: Final = [Struct(f">{count}i") for count in range(_MEMBERS_MAX + 1)]
_ONE_BYTE_MAX: Final = 0x7F
_LIST_NAMES: Final = {
    0: "isr",
    2: "replicas",
    3: "removing_replicas",
    4: "adding_replicas",
    6: "eligible_leader_replicas",
    7: "last_known_elr",
}
_TAG_LEADER, _TAG_RECOVERY, _TAG_DIRECTORIES = 1, 5, 8
_LEADER_BYTES, _RECOVERY_BYTES, _UUID_BYTES = 4, 1, 16


def encode_partition_change(record: PartitionChangeRecord) -> bytes | None:
    """The whole value of the record, frame included."""
    parts = [PARTITION_CHANGE, _HEAD.pack(record.partition_id, record.topic_id.bytes), b""]
    add = parts.append
    if record.isr is not None:
        add(_members(0, record.isr))
    if record.leader is not None:
        add(_LEADER.pack(_TAG_LEADER, _LEADER_BYTES, record.leader))
    if record.replicas is not None:
        add(_members(2, record.replicas))
    if record.removing_replicas is not None:
        add(_members(3, record.removing_replicas))
    if record.adding_replicas is not None:
        add(_members(4, record.adding_replicas))
    if record.leader_recovery_state is not None:
        add(bytes((_TAG_RECOVERY, _RECOVERY_BYTES, record.leader_recovery_state)))
    if record.eligible_leader_replicas is not None:
        add(_members(6, record.eligible_leader_replicas))
    if record.last_known_elr is not None:
        add(_members(7, record.last_known_elr))
    if record.directories is not None:
        count = len(record.directories)
        head = bytes((_TAG_DIRECTORIES, 1 + _UUID_BYTES * count, 1 + count)) if count <= _MEMBERS_MAX else b""
        add(head + b"".join([directory.bytes for directory in record.directories]) if head else b"")
    parts[2] = bytes((len(parts) - 3,))
    return None if b"" in parts else b"".join(parts)


def _members(tag: int, members: tuple[int, ...]) -> bytes:
    """A list of brokers as a tagged field; nothing if it is too long."""
    count = len(members)
    if count > _MEMBERS_MAX:
        return b""
    return bytes((tag, 1 + 4 * count, 1 + count)) + _IDS[count].pack(*members)


def decode_partition_change(value: bytes) -> PartitionChangeRecord | None:
    """The record of a value that begins with PARTITION_CHANGE; None where there is anything unusual about it."""
    if len(value) <= _TAGS_AT:
        return None
    partition_id, topic_id = _HEAD.unpack_from(value, _BODY_AT)
    fields: dict[str, Any] = {}
    position = _TAGS_AT + 1
    for _ in range(value[_TAGS_AT]):
        if position + 2 > len(value):
            return None
        tag, size = value[position], value[position + 1]
        position += 2
        end = position + size
        read = _READERS.get(tag)
        if read is None or size > _ONE_BYTE_MAX or end > len(value) or not read(fields, value, position, size):
            return None
        position = end
    if position != len(value):
        return None
    return PartitionChangeRecord(partition_id=partition_id, topic_id=UUID(bytes=topic_id), **fields)


def _list_reader(name: str) -> Callable[[dict[str, Any], bytes, int, int], bool]:
    def read(fields: dict[str, Any], value: bytes, position: int, size: int) -> bool:
        count = value[position] - 1 if size else -1
        if not 0 <= count <= _MEMBERS_MAX or size != 1 + 4 * count:
            return False
        fields[name] = _IDS[count].unpack_from(value, position + 1)
        return True

    return read


def _read_leader(fields: dict[str, Any], value: bytes, position: int, size: int) -> bool:
    if size != _LEADER_BYTES:
        return False
    fields["leader"] = int.from_bytes(value[position : position + size], "big", signed=True)
    return bool(fields["leader"] >= -1)


def _read_recovery(fields: dict[str, Any], value: bytes, position: int, size: int) -> bool:
    fields["leader_recovery_state"] = value[position] if size else -1
    return size == _RECOVERY_BYTES and value[position] <= _ONE_BYTE_MAX


def _read_directories(fields: dict[str, Any], value: bytes, position: int, size: int) -> bool:
    count = value[position] - 1 if size else -1
    if not 0 <= count <= _MEMBERS_MAX or size != 1 + _UUID_BYTES * count:
        return False
    starts = range(position + 1, position + size, _UUID_BYTES)
    fields["directories"] = tuple([UUID(bytes=value[start : start + _UUID_BYTES]) for start in starts])
    return True


_READERS: Final = {
    **{tag: _list_reader(name) for tag, name in _LIST_NAMES.items()},
    _TAG_LEADER: _read_leader,
    _TAG_RECOVERY: _read_recovery,
    _TAG_DIRECTORIES: _read_directories,
}
