"""What stands in `__consumer_offsets`: the keys and values of its records.

They are Kafka's own, so that its tools read our log; the api key of such a class is the type of the record, not the key
of a request. On disk a key begins with that type and a value with its version, two bytes each, which are not part of
these classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import Bytes, Int8, Int32, Int64, Message, String, Uuid, ignorable, since, tag, until


class LegacyOffsetCommitKey(Message, api_key=0, versions=(0, 0)):
    """As OffsetCommitKey; from before offsets could expire at a time of their own."""

    group: String
    topic: String
    partition: Int32


class LegacyOffsetCommitValue(Message, api_key=0, versions=(0, 0)):
    """As OffsetCommitValue in version 0."""

    offset: Int64
    metadata: String
    commit_timestamp: Int64


class OffsetCommitKey(Message, api_key=1, versions=(0, 0)):
    """A group and a partition that it consumes."""

    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message, api_key=1, versions=(0, 4), flexible_since=4):
    """The offset to go on with."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3), ignorable] = -1
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, since(1), until(1), ignorable] = -1
    topic_id: Annotated[Uuid, since(4), tag(0), ignorable] = ZERO_UUID


class GroupMetadataKey(Message, api_key=2, versions=(0, 0)):
    """A classic group."""

    group: String


class MemberMetadata(Message):
    """A member of a classic group. The timeouts are in milliseconds; without one for rebalances it is the session's."""

    member_id: String
    group_instance_id: Annotated[String | None, since(3), ignorable] = None
    client_id: String
    client_host: String
    rebalance_timeout: Annotated[Int32, since(1), ignorable] = -1
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(Message, api_key=2, versions=(0, 4), flexible_since=4):
    """A generation of a classic group."""

    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Annotated[Int64, since(2), ignorable] = -1
    members: Sequence[MemberMetadata]


class ConsumerGroupMetadataKey(Message, api_key=3, versions=(0, 0)):
    """A consumer group."""

    group_id: String


class ConsumerGroupMetadataValue(Message, api_key=3, versions=(0, 0), flexible_since=0):
    """The epoch of a consumer group, and a hash of the topics that it rests on."""

    epoch: Int32
    metadata_hash: Annotated[Int64, tag(0)] = 0


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions=(0, 0)):
    """A member of a consumer group."""

    group_id: String
    member_id: String


class ClassicProtocol(Message):
    """An assignment protocol that a classic member can work with, and what it says in it."""

    name: String
    metadata: Bytes


class ClassicMemberMetadata(Message):
    """What is known only of a member that speaks the classic protocol."""

    session_timeout_ms: Int32
    supported_protocols: Sequence[ClassicProtocol]


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions=(0, 0), flexible_since=0):
    """A member as it described itself."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Sequence[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, tag(0)] = None


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions=(0, 0)):
    """The assignment that a consumer group works towards."""

    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions=(0, 0), flexible_since=0):
    """The epoch of that assignment, and when it was made."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions=(0, 0)):
    """A member in the assignment that its group works towards."""

    group_id: String
    member_id: String


class TopicPartition(Message):
    """Partitions of one topic that a member shall have."""

    topic_id: Uuid
    partitions: Sequence[Int32]


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions=(0, 0), flexible_since=0):
    """What a member shall have in the end."""

    topic_partitions: Sequence[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions=(0, 0)):
    """A member with what it has."""

    group_id: String
    member_id: String


class TopicPartitions(Message):
    """Partitions of one topic that a member has; the epochs say since when it has each, null where nobody noted it."""

    topic_id: Uuid
    partitions: Sequence[Int32]
    assignment_epochs: Annotated[Sequence[Int32] | None, tag(0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions=(0, 0), flexible_since=0):
    """What a member has, and what it still has to give back."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Sequence[TopicPartitions]
    partitions_pending_revocation: Sequence[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions=(0, 0)):
    """A pattern that members of a consumer group subscribe with."""

    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions=(0, 0), flexible_since=0):
    """The topics that the pattern matched in one version of the metadata."""

    topics: Sequence[String]
    version: Int64
    timestamp: Int64


class RecordType(NamedTuple):
    """The two halves of a record."""

    key: type[Message]
    value: type[Message]


RECORD_TYPES: Final[Mapping[int, RecordType]] = {
    0: RecordType(LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: RecordType(OffsetCommitKey, OffsetCommitValue),
    2: RecordType(GroupMetadataKey, GroupMetadataValue),
    3: RecordType(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: RecordType(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: RecordType(ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: RecordType(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: RecordType(ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: RecordType(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""By the type that a key begins with. Not here: 4, which Kafka 4.0 wrote and nobody needs any more, and the records of
share and streams groups."""
