"""What a broker said about brokers, topics and leaders, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.client.errors import error_code
from ottla.client.settings import Address
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1


class Broker(NamedTuple):
    """One broker, at the address that it advertises."""

    node_id: int
    address: Address
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.node_id} at {self.address}"


class PartitionMetadata(NamedTuple):
    """One partition: who leads it and who follows."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic with its partitions, in order of their numbers."""

    name: str
    topic_id: UUID = ZERO_UUID
    internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    @property
    def has_leaders(self) -> bool:
        """Whether every partition can be written and read now."""
        return bool(self.partitions) and all(partition.leader != NO_LEADER for partition in self.partitions)


@dataclass(slots=True)
class ClusterMetadata:
    """The sum of the answers so far. A topic is replaced as a whole when it is asked for again."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    fetched_at: dict[str, float] = field(default_factory=dict)
    """When each topic was last asked for, on the monotonic clock."""

    def leader(self, partition: TopicPartition) -> PartitionMetadata | None:
        """The partition's entry, or None if the topic or the partition is not known."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def take(self, answer: MetadataResponse, now: float) -> None:
        """Take over an answer; its brokers are all there are, its topics those that were asked for."""
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self.brokers = {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in answer.brokers
        }
        for topic in answer.topics:
            if topic.name is not None:
                self.topics[topic.name] = _topic(topic, topic.name)
                self.fetched_at[topic.name] = now

    def forget(self, topic: str) -> None:
        """The next question about this topic goes to a broker."""
        self.fetched_at.pop(topic, None)

    def forget_all(self) -> None:
        """The next question about any topic goes to a broker."""
        self.fetched_at.clear()


def _topic(topic: MetadataResponseTopic, name: str) -> TopicMetadata:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicMetadata(
        name=name,
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        error=error_code(topic.error_code),
        partitions=tuple(
            PartitionMetadata(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
                error_code(partition.error_code),
            )
            for partition in partitions
        ),
    )
