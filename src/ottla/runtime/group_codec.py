"""The records of the group coordinator as keys and values in `__consumer_offsets`, and back.

A key is `type | fields`, a value `version | fields`, the first of each as two bytes; a tombstone has no value. What is
written are the versions that Kafka 4.3 writes, so Kafka's own `kafka-dump-log --offsets-decoder` reads it; what is read
is every version that Kafka ever wrote. Offsets, which are nearly all there is, are in `offset_codec`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.core.groups import records as core
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.runtime.coordinator_log import encode_first
from ottla.runtime.offset_codec import OFFSET_COMMIT, decode_offset, encode_offset, encode_plain_offset, offset_of
from ottla.wire.messages import group_records as wire
from ottla.wire.schema import EncodeError, Message
from ottla.wire.schema import decode as decode_message
from ottla.wire.schema import encode as encode_message

_PREFIX: Final = struct.Struct(">h")


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a record; ApiError (INVALID_REQUEST) if a name in it is longer than a key can hold."""
    try:
        if isinstance(record, OffsetRecord):
            return encode_offset(record)
        form = _FORMS[type(record)]
        key = encode_message(form.key(record), 0, _PREFIX.pack(form.kind))
        if record.gone:
            return key, None
        return key, encode_message(form.value(record), form.version, _PREFIX.pack(form.version))
    except (struct.error, EncodeError) as error:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"group {record.group_id[:100]!r} cannot be written down ({error}): "
            "names of groups, members and topics must be shorter than 32768 bytes",
        ) from error


def encode_alone(record: GroupRecord) -> bytes:
    """A record as it is in a batch that has no other; ApiError as above."""
    if type(record) is OffsetRecord:
        try:
            plain = encode_plain_offset(record)
        except struct.error:
            plain = None  # The other way says what is wrong.
        if plain is not None:
            return plain
    return encode_first(*encode(record))


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record of a key and a value; None for one that nobody here knows or that is damaged. Never raises."""
    try:
        kind: int = _PREFIX.unpack_from(key)[0]
        if kind == OFFSET_COMMIT:
            offset = decode_offset(key, value)
            if offset is not None:
                return offset
        key_type, value_type = wire.RECORD_TYPES[kind]
        key_message = decode_message(key_type, key, 0, 2)
        if value is None:
            return _GONE[kind](key_message)
        version: int = _PREFIX.unpack_from(value)[0]
        return _READ[kind](key_message, decode_message(value_type, value, version, 2))
    except (struct.error, UnicodeDecodeError, IndexError, KeyError, MalformedMessageError, ApiError):
        return None


def _classic_group(record: core.ClassicGroupRecord) -> Message:
    return wire.GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp=record.current_state_timestamp,
        members=[
            wire.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in record.members
        ],
    )


def _read_classic_group(key: wire.GroupMetadataKey, value: wire.GroupMetadataValue) -> GroupRecord:
    return core.ClassicGroupRecord(
        group_id=key.group,
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=value.current_state_timestamp,
        members=tuple(
            core.ClassicMemberRecord(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=(
                    member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout
                ),
                session_timeout_ms=member.session_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in value.members
        ),
    )


def _consumer_member(record: core.ConsumerMemberRecord) -> Message:
    classic = record.classic
    return wire.ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=record.subscribed_topic_names,
        subscribed_topic_regex=record.subscribed_topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        classic_member_metadata=None
        if classic is None
        else wire.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                wire.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.supported_protocols
            ],
        ),
    )


def _read_consumer_member(
    key: wire.ConsumerGroupMemberMetadataKey, value: wire.ConsumerGroupMemberMetadataValue
) -> GroupRecord:
    classic = value.classic_member_metadata
    return core.ConsumerMemberRecord(
        group_id=key.group_id,
        member_id=key.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=tuple(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else core.ClassicMemberMetadata(
            classic.session_timeout_ms,
            tuple(core.ClassicProtocol(protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
        ),
    )


def _current_member(record: core.CurrentMemberRecord) -> Message:
    def topics(partitions: core.Partitions) -> list[wire.TopicPartitions]:
        return [wire.TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in partitions]

    return wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.member_epoch,
        previous_member_epoch=record.previous_member_epoch,
        state=record.state,
        assigned_partitions=topics(record.assigned),
        partitions_pending_revocation=topics(record.pending_revocation),
    )


def _read_current_member(
    key: wire.ConsumerGroupCurrentMemberAssignmentKey, value: wire.ConsumerGroupCurrentMemberAssignmentValue
) -> GroupRecord:
    return core.CurrentMemberRecord(
        group_id=key.group_id,
        member_id=key.member_id,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=value.state,
        assigned=_partitions(value.assigned_partitions),
        pending_revocation=_partitions(value.partitions_pending_revocation),
    )


def _target_member(record: core.TargetMemberRecord) -> Message:
    return wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            wire.TopicPartition(topic_id=topic_id, partitions=numbers) for topic_id, numbers in record.partitions
        ]
    )


def _partitions(topics: Iterable[wire.TopicPartition | wire.TopicPartitions]) -> core.Partitions:
    return tuple(sorted((topic.topic_id, tuple(sorted(topic.partitions))) for topic in topics))


class _Form(NamedTuple):
    """How a record looks in the log: its type, the version that is written, and its two halves as messages."""

    kind: int
    version: int
    key: Callable[[Any], Message]
    value: Callable[[Any], Message]


_FORMS: Final[Mapping[type[Any], _Form]] = {
    core.ClassicGroupRecord: _Form(2, 3, lambda record: wire.GroupMetadataKey(group=record.group_id), _classic_group),
    core.ConsumerGroupRecord: _Form(
        3,
        0,
        lambda record: wire.ConsumerGroupMetadataKey(group_id=record.group_id),
        lambda record: wire.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash),
    ),
    core.ConsumerMemberRecord: _Form(
        5,
        0,
        lambda record: wire.ConsumerGroupMemberMetadataKey(group_id=record.group_id, member_id=record.member_id),
        _consumer_member,
    ),
    core.TargetAssignmentRecord: _Form(
        6,
        0,
        lambda record: wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=record.group_id),
        lambda record: wire.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=record.assignment_epoch, assignment_timestamp=record.assignment_timestamp
        ),
    ),
    core.TargetMemberRecord: _Form(
        7,
        0,
        lambda record: wire.ConsumerGroupTargetAssignmentMemberKey(
            group_id=record.group_id, member_id=record.member_id
        ),
        _target_member,
    ),
    core.CurrentMemberRecord: _Form(
        8,
        0,
        lambda record: wire.ConsumerGroupCurrentMemberAssignmentKey(
            group_id=record.group_id, member_id=record.member_id
        ),
        _current_member,
    ),
    core.RegularExpressionRecord: _Form(
        16,
        0,
        lambda record: wire.ConsumerGroupRegularExpressionKey(
            group_id=record.group_id, regular_expression=record.regular_expression
        ),
        lambda record: wire.ConsumerGroupRegularExpressionValue(
            topics=record.topics, version=record.version, timestamp=record.timestamp
        ),
    ),
}

_READ: Final[Mapping[int, Callable[[Any, Any], GroupRecord]]] = {
    0: offset_of,
    1: offset_of,
    2: _read_classic_group,
    3: lambda key, value: core.ConsumerGroupRecord(
        group_id=key.group_id, epoch=value.epoch, metadata_hash=value.metadata_hash
    ),
    5: _read_consumer_member,
    6: lambda key, value: core.TargetAssignmentRecord(
        group_id=key.group_id,
        assignment_epoch=value.assignment_epoch,
        assignment_timestamp=value.assignment_timestamp,
    ),
    7: lambda key, value: core.TargetMemberRecord(
        group_id=key.group_id, member_id=key.member_id, partitions=_partitions(value.topic_partitions)
    ),
    8: _read_current_member,
    16: lambda key, value: core.RegularExpressionRecord(
        group_id=key.group_id,
        regular_expression=key.regular_expression,
        topics=tuple(value.topics),
        version=value.version,
        timestamp=value.timestamp,
    ),
}
"""For each type in the log how its record is read."""

_GONE: Final[Mapping[int, Callable[[Any], GroupRecord]]] = {
    0: lambda key: offset_of(key, None),
    1: lambda key: offset_of(key, None),
    2: lambda key: core.ClassicGroupRecord(group_id=key.group, gone=True),
    3: lambda key: core.ConsumerGroupRecord(group_id=key.group_id, gone=True),
    5: lambda key: core.ConsumerMemberRecord(group_id=key.group_id, member_id=key.member_id, gone=True),
    6: lambda key: core.TargetAssignmentRecord(group_id=key.group_id, gone=True),
    7: lambda key: core.TargetMemberRecord(group_id=key.group_id, member_id=key.member_id, gone=True),
    8: lambda key: core.CurrentMemberRecord(group_id=key.group_id, member_id=key.member_id, gone=True),
    16: lambda key: core.RegularExpressionRecord(
        group_id=key.group_id, regular_expression=key.regular_expression, gone=True
    ),
}
"""For each type in the log what its tombstone says."""
