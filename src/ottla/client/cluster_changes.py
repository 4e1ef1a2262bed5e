"""Changes to the cluster itself: who leads partitions, which brokers belong to it, who votes on its metadata."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ottla.client.cluster import Cluster
from ottla.client.descriptions import VoterEndpoint
from ottla.client.errors import BrokerError, broker_error
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.messages.quorum_nodes import LeaderEndpoint
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class ElectionType(IntEnum):
    """What leader is wanted, with the protocol's codes."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """What became of the election of one partition; None if it has the leader that was asked for."""

    partition: TopicPartition
    error: BrokerError | None


class ClusterChanges:
    """Calls that change the cluster, over a cluster that somebody else closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _broker_ms(self) -> int:
        return max(self._cluster.settings.request_timeout_ms - 1_000, 500)

    def elect_leaders(
        self, kind: ElectionType, partitions: Collection[TopicPartition] | None = None
    ) -> list[ElectionResult]:
        """Elections for these partitions, or with None for all that need one."""
        topics: dict[str, list[int]] = {}
        for partition in partitions or ():
            topics.setdefault(partition.topic, []).append(partition.partition)
        asked = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]

        def attempt() -> list[ElectionResult]:
            request = ElectLeadersRequest(
                election_type=kind,
                topic_partitions=None if partitions is None else asked,
                timeout_ms=self._broker_ms,
            )
            answer = self._cluster.controller().call(request, ElectLeadersResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, "cannot elect leaders")
            return sorted(
                _election(TopicPartition(topic.topic, result.partition_id), result.error_code, result.error_message)
                for topic in answer.replica_election_results
                for result in topic.partition_result
            )

        return self._cluster.retry(attempt)

    def unregister_broker(self, broker_id: int) -> None:
        """Take a broker that will not come back out of the metadata."""

        def attempt() -> None:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            answer = self._cluster.controller().call(request, UnregisterBrokerResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, f"cannot unregister broker {broker_id}", answer.error_message)

        self._cluster.retry(attempt, repeatable=False)

    def add_voter(self, node_id: int, directory_id: UUID, endpoints: Collection[VoterEndpoint]) -> None:
        """Let a node vote on the metadata. It must run already, and have caught up."""

        def attempt() -> None:
            request = AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=self._broker_ms,
                voter_id=node_id,
                voter_directory_id=directory_id,
                listeners=[
                    LeaderEndpoint(name=endpoint.listener, host=endpoint.address.host, port=endpoint.address.port)
                    for endpoint in endpoints
                ],
            )
            answer = self._cluster.any_connection().call(request, AddRaftVoterResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, f"cannot add voter {node_id}", answer.error_message)

        self._cluster.retry(attempt, repeatable=False)

    def remove_voter(self, node_id: int, directory_id: UUID) -> None:
        """Let a node vote no more."""

        def attempt() -> None:
            request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
            answer = self._cluster.any_connection().call(request, RemoveRaftVoterResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, f"cannot remove voter {node_id}", answer.error_message)

        self._cluster.retry(attempt, repeatable=False)


def _election(partition: TopicPartition, code: int, message: str | None) -> ElectionResult:
    if code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
        return ElectionResult(partition, None)
    return ElectionResult(partition, broker_error(code, f"cannot elect a leader of {partition}", message))
