"""What the answers of Metadata, DescribeCluster and DescribeTopicPartitions say alike about brokers and partitions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.core.controller.elections import has_directory
from ottla.core.controller.image import MetadataImage, PartitionImage
from ottla.core.controller.records import NO_LEADER
from ottla.core.controller.validation import topic_name_complaint
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS as INTERNAL_TOPICS
from ottla.wire.fields import CurrentLeader, NodeEndpoint

if TYPE_CHECKING:
    from ottla.runtime.absences import Absences


class BrokerAddress(NamedTuple):
    """A broker as clients of one listener reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


def broker_addresses(
    image: MetadataImage, listener: str, absences: Absences | None = None, *, with_fenced: bool = False
) -> Iterator[BrokerAddress]:
    """The brokers that have this listener, with those that left just now if `absences` are given."""
    for broker in image.brokers.values():
        if broker.fenced and not with_fenced and (absences is None or not absences.is_shown(broker.id)):
            continue
        for endpoint in broker.endpoints:
            if endpoint.name == listener:
                yield BrokerAddress(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


def leader_endpoints(image: MetadataImage, listener: str, leaders: Iterable[CurrentLeader]) -> list[NodeEndpoint]:
    """Where the leaders that an answer names are reached."""
    wanted = {leader.leader_id for leader in leaders}
    return [
        NodeEndpoint(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in broker_addresses(image, listener)
        if broker.node_id in wanted
    ]


def missing_topic(name: str) -> ApiError:
    """Why there is no topic of this name. One that can never be is told apart: a client gives up instead of waiting."""
    complaint = topic_name_complaint(name)
    if complaint is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, complaint)
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


class LeaderView(NamedTuple):
    """Who leads a partition, for clients of one listener."""

    leader_id: int
    error: ErrorCode


def leader_view(
    image: MetadataImage, partition: PartitionImage, listener: str, absent: Container[int] = ()
) -> LeaderView:
    """The leader, if there is one and clients of this listener can reach it; else why not.

    One of those that seem to be gone (`runtime/absences`) is none: the next one is being elected.
    """
    broker = image.brokers.get(partition.leader)
    if broker is None or partition.leader in absent:
        return LeaderView(NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE)
    if all(endpoint.name != listener for endpoint in broker.endpoints):
        return LeaderView(NO_LEADER, ErrorCode.LISTENER_NOT_FOUND)
    return LeaderView(partition.leader, ErrorCode.NONE)


def offline_replicas(image: MetadataImage, partition: PartitionImage) -> list[int]:
    """Replicas on brokers that are not there, or in directories that their brokers have lost."""
    return [
        replica
        for replica in partition.replicas
        if (broker := image.brokers.get(replica)) is None or broker.fenced or not has_directory(broker, partition)
    ]
