"""Offsets of partitions: the earliest, the latest, the first at or after a time."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import STALE_METADATA_CODES, ClientError, broker_error, error_code
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

CLIENT_REPLICA_ID: Final = -1
EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3


class Isolation(IntEnum):
    """What a reader may see of transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetAt(NamedTuple):
    """An offset that was asked for. -1 where nothing is at or after the time."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    asked: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAt]:
    """For each partition the offset at EARLIEST, LATEST, MAX_TIMESTAMP, or the first at or after a time in ms.

    LATEST is where the next record will be; with READ_COMMITTED it is the last stable offset.
    """
    found: dict[TopicPartition, OffsetAt] = {}

    def attempt() -> dict[TopicPartition, OffsetAt]:
        missing = {partition: time for partition, time in asked.items() if partition not in found}
        _ask_leaders(cluster, missing, isolation, found)
        return found

    return cluster.retry(attempt)


def _ask_leaders(
    cluster: Cluster,
    asked: Mapping[TopicPartition, int],
    isolation: Isolation,
    found: dict[TopicPartition, OffsetAt],
) -> None:
    """Ask all leaders at once, then take their answers; the first failure is raised when all have been taken."""
    failure: ClientError | None = None
    under_way = []
    for node_id, partitions in by_leader(cluster, asked).items():
        request = ListOffsetsRequest(
            replica_id=CLIENT_REPLICA_ID,
            isolation_level=isolation,
            topics=_topics({partition: asked[partition] for partition in partitions}, cluster),
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        connection = cluster.connection(node_id)
        under_way.append((connection, connection.send(request, ListOffsetsResponse)))
    for connection, pending in under_way:
        try:
            answer = connection.receive(pending)
        except ClientError as error:
            failure = failure or error
            continue
        for topic in answer.topics:
            for entry in topic.partitions:
                failure = _take(cluster, TopicPartition(topic.name, entry.partition_index), entry, found) or failure
    if failure is not None:
        raise failure


def by_leader(cluster: Cluster, partitions: Mapping[TopicPartition, object]) -> dict[int, list[TopicPartition]]:
    """The partitions of each leader."""
    led: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        led.setdefault(cluster.leader(partition).node_id, []).append(partition)
    return led


def _topics(asked: Mapping[TopicPartition, int], cluster: Cluster) -> list[ListOffsetsTopic]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, timestamp in asked.items():
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=cluster.leader_epoch(partition),
                timestamp=timestamp,
            )
        )
    return [ListOffsetsTopic(name=name, partitions=entries) for name, entries in topics.items()]


def _take(
    cluster: Cluster,
    partition: TopicPartition,
    entry: ListOffsetsPartitionResponse,
    found: dict[TopicPartition, OffsetAt],
) -> ClientError | None:
    if entry.error_code == ErrorCode.NONE:
        found[partition] = OffsetAt(entry.offset, entry.timestamp, entry.leader_epoch)
        return None
    if error_code(entry.error_code) in STALE_METADATA_CODES:
        cluster.forget(partition.topic)
    return broker_error(entry.error_code, f"offsets of {partition}")
