"""The group's consumer: an assignment that it could not take in is asked for again."""

from __future__ import annotations

import random
from typing import cast
from uuid import UUID

from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.schema import Message
from simulator.clients.cluster import ClusterClient
from simulator.clients.connection import ClientConnection, Gone
from simulator.clients.group_member import GroupMember
from simulator.history import History, Place
from simulator.room import Room
from simulator.timeline import SECOND_US

TOPIC_ID = UUID(int=7)


class Coordinator:
    """Names the assignment to who joins and to who says everything, and to nobody else."""

    def __init__(self, *, answers_lost: int = 0) -> None:
        self.answers_lost = answers_lost
        self.heard: list[bool] = []
        """Of each heartbeat, whether it said everything."""

    async def request(self, message: Message, _response: type[Message], *, timeout_ms: int) -> Message:
        assert timeout_ms
        if isinstance(message, OffsetFetchRequest):
            row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)
            topic = OffsetFetchResponseTopics(topic_id=TOPIC_ID, partitions=[row])
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])
        assert isinstance(message, ConsumerGroupHeartbeatRequest)
        is_full = message.rebalance_timeout_ms >= 0 and message.subscribed_topic_names is not None
        self.heard.append(is_full)
        if self.answers_lost:
            self.answers_lost -= 1
            raise Gone("the answer was lost")
        rows = [TopicPartitions(topic_id=TOPIC_ID, partitions=[0])]
        named = Assignment(topic_partitions=rows) if is_full else None
        return ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=1000, assignment=named)


class Cluster(ClusterClient):
    """One coordinator; the first so many questions for metadata fail, the next so many know no topic."""

    def __init__(self, coordinator: Coordinator, *, unanswered: int = 0, unknown: int = 0) -> None:
        super().__init__(Room(1), "member", [("node-1", 9092)])
        self.rng = random.Random(1)
        self._only = coordinator
        self._unanswered = unanswered
        self._unknown = unknown

    async def coordinator(self, key: str, kind: int) -> ClientConnection:
        assert (key, kind) == ("g", 0)
        return cast(ClientConnection, self._only)

    async def refresh(self, topics: list[str]) -> None:
        if self._unanswered:
            self._unanswered -= 1
            raise Gone("connection reset")
        if self._unknown:
            self._unknown -= 1
            return
        self.topic_ids = dict.fromkeys(topics, TOPIC_ID)


def member_after(seconds: int, cluster: Cluster) -> GroupMember:
    timeline = cluster.room.timeline
    member = GroupMember(cluster, History(timeline), "g", ["orders"])
    cluster.loop.start(member.run(1000.0))
    timeline.run(timeline.now_us + seconds * SECOND_US)
    return member


def owns_the_partition(member: GroupMember) -> bool:
    return list(member.owned) == [Place("orders", 0)] and member.position_of(Place("orders", 0)) == 5


def test_a_member_says_everything_when_it_joins_and_then_no_more() -> None:
    coordinator = Coordinator()
    assert owns_the_partition(member_after(5, Cluster(coordinator)))
    assert coordinator.heard[:3] == [True, False, False]


def test_an_assignment_whose_topic_could_not_be_looked_up_is_asked_for_again() -> None:
    coordinator = Coordinator()
    assert owns_the_partition(member_after(5, Cluster(coordinator, unanswered=1)))
    assert coordinator.heard[:3] == [True, True, False]


def test_a_topic_that_nobody_knows_yet_is_asked_for_again() -> None:
    assert owns_the_partition(member_after(5, Cluster(Coordinator(), unknown=2)))


def test_an_assignment_whose_answer_was_lost_is_asked_for_again() -> None:
    """Here the coordinator has it noted in the member's own epoch, and has no news for it."""
    coordinator = Coordinator()
    cluster = Cluster(coordinator)
    member = member_after(5, cluster)
    coordinator.answers_lost = 1
    coordinator.heard.clear()
    timeline = cluster.room.timeline
    timeline.run(timeline.now_us + 5 * SECOND_US)
    assert coordinator.heard[:3] == [False, True, False]
    assert owns_the_partition(member)
