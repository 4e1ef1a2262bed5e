"""ConsumerGroupHeartbeat: all that a member of a consumer group has to say, from joining to leaving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int16, Int32, Message, String, Uuid, since


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: Sequence[Int32]


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions=(0, 1), flexible_since=0):
    """The member as it is; null, and -1 for the timeout, where nothing changed since the last heartbeat.

    The epoch is 0 to join, -1 to leave, -2 for a static member that will come back.
    """

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Sequence[String] | None = None
    subscribed_topic_regex: Annotated[String | None, since(1)] = None
    server_assignor: String | None = None
    topic_partitions: Sequence[TopicPartitions] | None = None


class Assignment(Message):
    """All that a member shall own."""

    topic_partitions: Sequence[TopicPartitions]


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions=(0, 1), flexible_since=0):
    """The member's epoch, when to be back, and its assignment unless it has that already."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
