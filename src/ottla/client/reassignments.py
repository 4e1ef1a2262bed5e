"""Moving replicas between brokers: begin, stop, see what is under way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError, broker_error
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

PARTITIONS_PER_REQUEST: Final = 1_000
"""A controller refuses requests that are too large, and decides each as a whole."""


class Reassignment(NamedTuple):
    """A partition on the move."""

    replicas: tuple[int, ...]
    """All that have or will have a copy, those that stay first."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing)


class Reassignments:
    """Calls about moves, over a cluster that somebody else closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def begin(self, moves: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, BrokerError]:
        """Let partitions move to these replicas. What cannot is in the answer, with the reason."""
        return self._alter(moves)

    def cancel(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, BrokerError]:
        """Stop moves; what was there before stays. A partition that does not move (any more) is no error."""
        refused = self._alter(dict.fromkeys(partitions))
        return {
            partition: error
            for partition, error in refused.items()
            if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        }

    def under_way(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Reassignment]:
        """What moves, of these partitions or of all."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in _by_topic(partitions).items()
            ]

        def attempt() -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=self._broker_ms)
            answer = self._cluster.controller().call(request, ListPartitionReassignmentsResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, "cannot list reassignments", answer.error_message)
            return {
                TopicPartition(topic.name, moving.partition_index): Reassignment(
                    tuple(moving.replicas), tuple(moving.adding_replicas), tuple(moving.removing_replicas)
                )
                for topic in answer.topics
                for moving in topic.partitions
            }

        return self._cluster.retry(attempt)

    @property
    def _broker_ms(self) -> int:
        return max(self._cluster.settings.request_timeout_ms - 1_000, 500)

    def _alter(self, moves: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, BrokerError]:
        refused: dict[TopicPartition, BrokerError] = {}
        partitions = list(moves)
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            part = {partition: moves[partition] for partition in partitions[start : start + PARTITIONS_PER_REQUEST]}
            refused |= self._alter_some(part)
        return refused

    def _alter_some(self, moves: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, BrokerError]:
        topics = [
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=moves[TopicPartition(name, index)])
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(moves).items()
        ]

        def attempt() -> dict[TopicPartition, BrokerError]:
            # Asking a second time for the same place changes nothing, so this may be repeated.
            request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=self._broker_ms)
            answer = self._cluster.controller().call(request, AlterPartitionReassignmentsResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, "cannot reassign partitions", answer.error_message)
            return {
                TopicPartition(topic.name, result.partition_index): broker_error(
                    result.error_code,
                    f"cannot reassign {TopicPartition(topic.name, result.partition_index)}",
                    result.error_message,
                )
                for topic in answer.responses
                for result in topic.partitions
                if result.error_code != ErrorCode.NONE
            }

        return self._cluster.retry(attempt)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics
