"""What the answers of Metadata, DescribeCluster and DescribeTopicPartitions say alike about brokers and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.core.controller.image import MetadataImage, PartitionImage
from ottla.core.controller.records import NO_LEADER
from ottla.model.errors import ErrorCode
from ottla.model.ids import INTERNAL_TOPICS as INTERNAL_TOPICS


class BrokerAddress(NamedTuple):
    """A broker as clients of one listener reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


def broker_addresses(image: MetadataImage, listener: str, *, with_fenced: bool = False) -> Iterator[BrokerAddress]:
    """The brokers that have this listener."""
    for broker in image.brokers.values():
        if broker.fenced and not with_fenced:
            continue
        for endpoint in broker.endpoints:
            if endpoint.name == listener:
                yield BrokerAddress(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


def partition_error(partition: PartitionImage) -> ErrorCode:
    return ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE


def offline_replicas(image: MetadataImage, partition: PartitionImage) -> list[int]:
    """Replicas on brokers that are not there."""
    return [
        replica for replica in partition.replicas if (broker := image.brokers.get(replica)) is None or broker.fenced
    ]
