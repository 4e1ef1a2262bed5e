"""Elections, brokers that go, voters that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from ottla.client.cluster import Cluster
from ottla.client.cluster_changes import ClusterChanges, ElectionType
from ottla.client.descriptions import VoterEndpoint
from ottla.client.errors import BrokerError, UnsupportedVersionError
from ottla.client.settings import Address
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.wire.schema import Message, decode, encode
from tests.unit.client.scripted_broker import Answer, ScriptedBroker

KINDS: dict[int, tuple[type[Message], tuple[int, int]]] = {
    43: (ElectLeadersRequest, (0, 2)),
    64: (UnregisterBrokerRequest, (0, 0)),
    80: (AddRaftVoterRequest, (0, 1)),
    81: (RemoveRaftVoterRequest, (0, 0)),
}


class Keeper(ScriptedBroker):
    """Keeps what it is asked, and answers with what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Message] = []
        self.response: Message = UnregisterBrokerResponse()
        for key, (request, versions) in KINDS.items():
            self.offered[key] = versions
            self.answers[key] = self._keep(request)

    def _keep(self, request: type[Message]) -> Answer:
        def answer(version: int, frame: memoryview, position: int) -> bytes:
            self.requests.append(decode(request, frame[position:], version))
            return encode(self.response, version)

        return answer


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with Keeper() as broker:
        yield broker


@pytest.fixture
def changes(keeper: Keeper) -> Iterator[ClusterChanges]:
    with Cluster(keeper.settings()) as cluster:
        yield ClusterChanges(cluster)


def test_elections_come_back_one_by_one(keeper: Keeper, changes: ClusterChanges) -> None:
    codes = [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    results = [PartitionResult(partition_id=index, error_code=code) for index, code in enumerate(codes)]
    keeper.response = ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic="t", partition_result=results)]
    )
    found = changes.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", index) for index in range(3)])
    assert [result.error is None for result in found] == [True, True, False]
    request = keeper.requests[0]
    assert isinstance(request, ElectLeadersRequest)
    assert request.topic_partitions is not None
    assert list(request.topic_partitions[0].partitions) == [0, 1, 2]
    changes.elect_leaders(ElectionType.UNCLEAN)
    request = keeper.requests[1]
    assert isinstance(request, ElectLeadersRequest)
    assert (request.election_type, request.topic_partitions) == (1, None)


def test_elections_that_are_refused_as_a_whole(keeper: Keeper, changes: ClusterChanges) -> None:
    keeper.response = ElectLeadersResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, replica_election_results=[]
    )
    with pytest.raises(BrokerError, match="cannot elect leaders"):
        changes.elect_leaders(ElectionType.PREFERRED)


def test_a_broker_is_unregistered_or_not_there(keeper: Keeper, changes: ClusterChanges) -> None:
    changes.unregister_broker(4)
    assert keeper.requests == [UnregisterBrokerRequest(broker_id=4)]
    keeper.response = UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="no 5")
    with pytest.raises(BrokerError, match="cannot unregister broker 5: no 5"):
        changes.unregister_broker(5)


def test_voters_come_and_go(keeper: Keeper, changes: ClusterChanges) -> None:
    directory = UUID(int=9)
    keeper.response = AddRaftVoterResponse()
    changes.add_voter(4, directory, [VoterEndpoint("CONTROLLER", Address("h", 9093))])
    added = keeper.requests[0]
    assert isinstance(added, AddRaftVoterRequest)
    assert (added.voter_id, added.voter_directory_id) == (4, directory)
    assert [(entry.name, entry.host, entry.port) for entry in added.listeners] == [("CONTROLLER", "h", 9093)]
    keeper.response = RemoveRaftVoterResponse()
    changes.remove_voter(4, directory)
    assert keeper.requests[1] == RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=directory)
    keeper.response = AddRaftVoterResponse(error_code=ErrorCode.DUPLICATE_VOTER)
    with pytest.raises(BrokerError, match="cannot add voter 4"):
        changes.add_voter(4, directory, [])


def test_an_old_cluster_has_no_voters_to_add(keeper: Keeper, changes: ClusterChanges) -> None:
    del keeper.offered[80]
    with pytest.raises(UnsupportedVersionError):
        changes.add_voter(4, UUID(int=9), [])
