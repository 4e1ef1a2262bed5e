"""AssignReplicasToDirs: a broker tells which of its directories its replicas are in."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Int64, Message, Uuid


class RequestPartitionData(Message):
    """A partition by index. Kafka calls it PartitionData, like the one in the response."""

    partition_index: Int32


class RequestTopicData(Message):
    """Partitions of one topic. Kafka calls it TopicData, like the one in the response."""

    topic_id: Uuid
    partitions: Sequence[RequestPartitionData]


class RequestDirectoryData(Message):
    """A directory and what is in it. Kafka calls it DirectoryData, like the one in the response."""

    id: Uuid
    topics: Sequence[RequestTopicData]


class AssignReplicasToDirsRequest(Message, api_key=73, versions=(0, 0), flexible_since=0):
    """The directories of one broker."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: Sequence[RequestDirectoryData]


class PartitionData(Message):
    """What became of one partition."""

    partition_index: Int32
    error_code: Int16 = 0


class TopicData(Message):
    """The partitions of one topic."""

    topic_id: Uuid
    partitions: Sequence[PartitionData]


class DirectoryData(Message):
    """The topics of one directory."""

    id: Uuid
    topics: Sequence[TopicData]


class AssignReplicasToDirsResponse(Message, api_key=73, versions=(0, 0), flexible_since=0):
    """The answer for each partition, or an error for all."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: Sequence[DirectoryData] = []
