"""DescribeTopicPartitions: topics page by page, with their eligible leaders."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.model.ids import AUTHORIZED_OPERATIONS_OMITTED, ZERO_UUID
from ottla.wire.schema import Bool, Int16, Int32, Message, String, Uuid


class TopicRequest(Message):
    """A topic by name."""

    name: String


class Cursor(Message):
    """The partition to go on with."""

    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsRequest(Message, api_key=75, versions=(0, 0), flexible_since=0):
    """Asks for topics, or with an empty list for all, from the cursor on."""

    topics: Sequence[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Message):
    """One partition."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32] = []


class DescribeTopicPartitionsResponseTopic(Message):
    """One topic and the partitions of it that are on this page."""

    error_code: Int16 = 0
    name: String | None
    topic_id: Uuid = ZERO_UUID
    is_internal: Bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = AUTHORIZED_OPERATIONS_OMITTED


class DescribeTopicPartitionsResponse(Message, api_key=75, versions=(0, 0), flexible_since=0):
    """One page; the cursor is null on the last one."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None
