"""Moves are asked for in bounded requests, and what is refused comes back by partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError
from ottla.client.reassignments import PARTITIONS_PER_REQUEST, Reassignment, Reassignments
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.wire.schema import decode, encode
from tests.unit.client.scripted_broker import ScriptedBroker

ALTER, LIST = 45, 46


class Mover(ScriptedBroker):
    """Takes moves of partitions and refuses those of negative brokers. `moving` is what it lists."""

    def __init__(self) -> None:
        super().__init__()
        self.offered |= {ALTER: (0, 1), LIST: (0, 0)}
        self.answers |= {ALTER: self.alter, LIST: self.list}
        self.requests: list[dict[TopicPartition, list[int] | None]] = []
        self.asked: list[list[TopicPartition] | None] = []
        self.failures: list[ErrorCode] = []
        self.refusal = ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def alter(self, version: int, frame: memoryview, position: int) -> bytes:
        request = decode(AlterPartitionReassignmentsRequest, frame[position:], version)
        asked = {
            TopicPartition(topic.name, entry.partition_index): entry.replicas
            for topic in request.topics
            for entry in topic.partitions
        }
        if self.failures:
            return encode(AlterPartitionReassignmentsResponse(error_code=self.failures.pop(), responses=[]), version)
        self.requests.append({key: None if value is None else list(value) for key, value in asked.items()})
        topics: dict[str, list[ReassignablePartitionResponse]] = {}
        for partition, replicas in asked.items():
            code = self.refusal if replicas is None or -1 in replicas else ErrorCode.NONE
            answer = ReassignablePartitionResponse(
                partition_index=partition.partition, error_code=code, error_message="why not" if code else None
            )
            topics.setdefault(partition.topic, []).append(answer)
        responses = [ReassignableTopicResponse(name=name, partitions=answers) for name, answers in topics.items()]
        return encode(AlterPartitionReassignmentsResponse(responses=responses), version)

    def list(self, version: int, frame: memoryview, position: int) -> bytes:
        asked = decode(ListPartitionReassignmentsRequest, frame[position:], version).topics
        self.asked.append(
            None
            if asked is None
            else [TopicPartition(topic.name, index) for topic in asked for index in topic.partition_indexes]
        )
        if self.failures:
            code = self.failures.pop()
            return encode(ListPartitionReassignmentsResponse(error_code=code, topics=[]), version)
        moving = OngoingPartitionReassignment(
            partition_index=3, replicas=[2, 3, 1], adding_replicas=[3], removing_replicas=[1]
        )
        return encode(
            ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="t", partitions=[moving])]),
            version,
        )


@pytest.fixture
def mover() -> Iterator[Mover]:
    with Mover() as broker:
        yield broker


@pytest.fixture
def moves(mover: Mover) -> Iterator[Reassignments]:
    with Cluster(mover.settings()) as cluster:
        yield Reassignments(cluster)


def test_what_is_refused_comes_back_with_its_reason(mover: Mover, moves: Reassignments) -> None:
    refused = moves.begin({TopicPartition("t", 0): [1, 2], TopicPartition("t", 1): [-1], TopicPartition("u", 0): [3]})
    assert list(refused) == [TopicPartition("t", 1)]
    assert "why not" in str(refused[TopicPartition("t", 1)])
    assert mover.requests[0][TopicPartition("u", 0)] == [3]


def test_many_moves_go_in_several_requests(mover: Mover, moves: Reassignments) -> None:
    count = 2 * PARTITIONS_PER_REQUEST + 1
    assert moves.begin({TopicPartition("t", index): [1] for index in range(count)}) == {}
    assert [len(request) for request in mover.requests] == [PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST, 1]


def test_a_controller_on_the_move_is_asked_again(mover: Mover, moves: Reassignments) -> None:
    mover.failures = [ErrorCode.NOT_CONTROLLER]
    assert moves.begin({TopicPartition("t", 0): [1]}) == {}
    mover.failures = [ErrorCode.NOT_CONTROLLER]
    assert len(moves.under_way()) == 1


def test_a_request_that_is_refused_as_a_whole_is_an_error(mover: Mover, moves: Reassignments) -> None:
    mover.failures = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerError):
        moves.begin({TopicPartition("t", 0): [1]})


def test_stopping_what_does_not_move_is_no_error(mover: Mover, moves: Reassignments) -> None:
    assert list(moves.cancel([TopicPartition("t", 0)])) == [TopicPartition("t", 0)]
    assert mover.requests == [{TopicPartition("t", 0): None}]
    mover.refusal = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert moves.cancel([TopicPartition("t", 0)]) == {}


def test_what_moves_is_listed(mover: Mover, moves: Reassignments) -> None:
    expected = {TopicPartition("t", 3): Reassignment((2, 3, 1), (3,), (1,))}
    assert moves.under_way() == expected
    assert moves.under_way([TopicPartition("t", 3)]) == expected
    assert mover.asked == [None, [TopicPartition("t", 3)]]
    assert expected[TopicPartition("t", 3)].target == (2, 3)
