"""The quorum's requests on the wire: the right address, and only answers that make sense."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.core.quorum.effects import EndEpochRequest, Position, VoteRequest
from ottla.core.quorum.voters import ReplicaKey, VoterEndpoint
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC
from ottla.runtime.network import PeerError
from ottla.runtime.peers import Peers
from ottla.runtime.quorum_peers import QuorumPeers
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.wire.messages.quorum_nodes import NodeEndpoint
from ottla.wire.messages.vote import VotePartitionResult, VoteResponse, VoteTopicResult

OWN, OTHER = ReplicaKey(1, UUID(int=1)), ReplicaKey(2, UUID(int=2))
VOTE = VoteRequest(5, OWN, OTHER, 10, 4, True)
RECORDED = Position(2, "recorded", 2)


class Transport:
    """Answers by address: a message, or an error to raise."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    def to_address(self, host: str, port: int, lane: str) -> Any:
        transport = self

        class Peer:
            async def request(self, message: object, response: type, **_: object) -> object:
                transport.asked.append((host, message))
                answer = transport.answers[host]
                if isinstance(answer, Exception):
                    raise answer
                return answer

        return Peer()


def peers(transport: Transport, **configured: Position) -> QuorumPeers:
    found = {position.node_id: position for position in configured.values()}
    return QuorumPeers(cast(Peers, transport), "cluster", timeout_ms=100, fetch_bytes_max=1000, configured=found)


def granted(*, error: ErrorCode = ErrorCode.NONE, whole: ErrorCode = ErrorCode.NONE) -> VoteResponse:
    result = VotePartitionResult(partition_index=0, error_code=error, leader_id=3, leader_epoch=5, vote_granted=True)
    return VoteResponse(
        error_code=whole,
        topics=[VoteTopicResult(topic_name=METADATA_TOPIC, partitions=[result])],
        node_endpoints=[NodeEndpoint(node_id=3, host="leader", port=33)],
    )


def test_a_vote_goes_out_and_its_answer_comes_back() -> None:
    transport = Transport(recorded=granted())
    answer = asyncio.run(peers(transport).ask(RECORDED, VOTE))
    assert answer == (ErrorCode.NONE, 5, 3, True, Position(3, "leader", 33))
    [(_, message)] = transport.asked
    [partition] = message.topics[0].partitions
    assert (message.cluster_id, message.voter_id) == ("cluster", 2)
    assert (partition.replica_epoch, partition.replica_id, partition.replica_directory_id) == (5, 1, UUID(int=1))
    assert (partition.voter_directory_id, partition.last_offset, partition.last_offset_epoch) == (UUID(int=2), 10, 4)
    assert partition.pre_vote


def test_where_the_config_finds_a_voter_comes_first() -> None:
    transport = Transport(recorded=granted(), configured=granted())
    asyncio.run(peers(transport, it=Position(2, "configured", 2)).ask(RECORDED, VOTE))
    assert [host for host, _ in transport.asked] == ["configured"]


def test_where_it_was_recorded_is_tried_when_nobody_listens_there() -> None:
    transport = Transport(recorded=granted(), configured=PeerError("configured:2", "no", refused=True))
    asyncio.run(peers(transport, it=Position(2, "configured", 2)).ask(RECORDED, VOTE))
    assert [host for host, _ in transport.asked] == ["configured", "recorded"]
    silent = Transport(recorded=granted(), configured=PeerError("configured:2", "silence"))
    with pytest.raises(PeerError):
        asyncio.run(peers(silent, it=Position(2, "configured", 2)).ask(RECORDED, VOTE))
    assert [host for host, _ in silent.asked] == ["configured"], "it may have heard: nobody else is asked in its name"


@pytest.mark.parametrize(
    "answer",
    [
        granted(whole=ErrorCode.INCONSISTENT_CLUSTER_ID),
        VoteResponse(error_code=0, topics=[]),
        VoteResponse(error_code=0, topics=[VoteTopicResult(topic_name=METADATA_TOPIC, partitions=[])]),
    ],
)
def test_an_answer_without_a_vote_is_none(answer: VoteResponse) -> None:
    with pytest.raises(PeerError):
        asyncio.run(peers(Transport(recorded=answer)).ask(RECORDED, VOTE))


def test_a_leader_that_lets_go_names_its_successors_with_their_disks() -> None:
    transport = Transport(recorded=EndQuorumEpochResponse(error_code=0, topics=[]))
    request = EndEpochRequest(5, 1, (OTHER, OWN), (VoterEndpoint("PLAINTEXT", "own", 1),))
    with pytest.raises(PeerError):  # The answer is empty; what matters here is what was asked.
        asyncio.run(peers(transport).ask(RECORDED, request))
    [(_, message)] = transport.asked
    assert isinstance(message, EndQuorumEpochRequest)
    [partition] = message.topics[0].partitions
    assert list(partition.preferred_successors) == [2, 1]
    assert [(item.candidate_id, item.candidate_directory_id) for item in partition.preferred_candidates] == [OTHER, OWN]
