"""DescribeProducers: the idempotent producers that a partition remembers."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Int64, Message, String


class TopicRequest(Message):
    """Partitions of one topic."""

    name: String
    partition_indexes: Sequence[Int32]


class DescribeProducersRequest(Message, api_key=61, versions=(0, 0), flexible_since=0):
    """Asks for the producers of partitions."""

    topics: Sequence[TopicRequest]


class ProducerState(Message):
    """What a partition remembers of one producer."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Message):
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: Sequence[ProducerState] = []


class TopicResponse(Message):
    """The partitions of one topic."""

    name: String
    partitions: Sequence[PartitionResponse]


class DescribeProducersResponse(Message, api_key=61, versions=(0, 0), flexible_since=0):
    """The producers by partition."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicResponse]
