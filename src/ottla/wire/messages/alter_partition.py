"""AlterPartition: a leader asks for another ISR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int8, Int16, Int32, Int64, Message, Uuid, since, until


class BrokerState(Message):
    """A replica in the ISR, and the life of its broker in which it was seen."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class RequestPartitionData(Message):
    """The ISR that a partition is to have. Kafka calls it PartitionData, like the one in the response."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: Annotated[Sequence[Int32], until(2)] = []
    new_isr_with_epochs: Annotated[Sequence[BrokerState], since(3)] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


class RequestTopicData(Message):
    """Partitions of one topic. Kafka calls it TopicData, like the one in the response."""

    topic_id: Uuid
    partitions: Sequence[RequestPartitionData]


class AlterPartitionRequest(Message, api_key=56, versions=(2, 3), flexible_since=0):
    """The partitions to change, and the broker that leads them."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: Sequence[RequestTopicData]


class PartitionData(Message):
    """What became of it, and the state of the partition afterwards."""

    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: Sequence[Int32] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class TopicData(Message):
    """The partitions of one topic."""

    topic_id: Uuid
    partitions: Sequence[PartitionData]


class AlterPartitionResponse(Message, api_key=56, versions=(2, 3), flexible_since=0):
    """The answer for each partition, or an error for all."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: Sequence[TopicData] = []
