"""What several messages of the metadata quorum have inside them: where a node listens."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Message, String, Uint16


class NodeEndpoint(Message):
    """Where the leader that an answer names is reached."""

    node_id: Int32
    host: String
    port: Uint16


class LeaderEndpoint(Message):
    """A listener of the leader."""

    name: String
    host: String
    port: Uint16


class EpochPartitionResult(Message):
    """The epoch and leader that the other side knows. Kafka calls it PartitionData."""

    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


class EpochTopicResult(Message):
    """The partitions of one topic. Kafka calls it TopicData."""

    topic_name: String
    partitions: Sequence[EpochPartitionResult]
