"""DescribeQuorum: who votes on the metadata log, and how far each replica of it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import Int16, Int32, Int64, Message, String, Uint16, Uuid, ignorable, since


class RequestPartitionData(Message):
    """A partition by index. Kafka calls it PartitionData, like the one in the response."""

    partition_index: Int32


class RequestTopicData(Message):
    """Partitions of one topic. Kafka calls it TopicData, like the one in the response."""

    topic_name: String
    partitions: Sequence[RequestPartitionData]


class DescribeQuorumRequest(Message, api_key=55, versions=(0, 2), flexible_since=0):
    """Asks for the quorum of the metadata partition."""

    topics: Sequence[RequestTopicData]


class ReplicaState(Message):
    """How far one voter or observer is."""

    replica_id: Int32
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_UUID
    log_end_offset: Int64
    last_fetch_timestamp: Annotated[Int64, since(1), ignorable] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1), ignorable] = -1


class PartitionData(Message):
    """The leader, its voters and its observers."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2), ignorable] = None
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]


class TopicData(Message):
    """The partitions of one topic."""

    topic_name: String
    partitions: Sequence[PartitionData]


class Listener(Message):
    """Where a voter listens."""

    name: String
    host: String
    port: Uint16


class Node(Message):
    """A voter and its listeners."""

    node_id: Int32
    listeners: Sequence[Listener]


class DescribeQuorumResponse(Message, api_key=55, versions=(0, 2), flexible_since=0):
    """The state of the quorum."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2), ignorable] = None
    topics: Sequence[TopicData]
    nodes: Annotated[Sequence[Node], since(2)] = []
