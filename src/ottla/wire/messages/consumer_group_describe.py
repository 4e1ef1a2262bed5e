"""ConsumerGroupDescribe: consumer groups with their members and assignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import AUTHORIZED_OPERATIONS_OMITTED
from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String, Uuid, ignorable, since


class ConsumerGroupDescribeRequest(Message, api_key=69, versions=(0, 1), flexible_since=0):
    """Asks for groups by id."""

    group_ids: Sequence[String]
    include_authorized_operations: Bool = False


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid
    topic_name: String
    partitions: Sequence[Int32]


class Assignment(Message):
    """What a member has, or shall have."""

    topic_partitions: Sequence[TopicPartitions] = []


class Member(Message):
    """One member; its type is 0 if it speaks the classic protocol, 1 if the consumer protocol, -1 if unknown."""

    member_id: String
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Sequence[String]
    subscribed_topic_regex: String | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: Annotated[Int8, since(1), ignorable] = -1


class DescribedGroup(Message):
    """One group."""

    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Sequence[Member] = []
    authorized_operations: Int32 = AUTHORIZED_OPERATIONS_OMITTED


class ConsumerGroupDescribeResponse(Message, api_key=69, versions=(0, 1), flexible_since=0):
    """One description for each group."""

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup]
