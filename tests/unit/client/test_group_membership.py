"""A member finds its way into the group, and back into it."""

from __future__ import annotations

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError
from ottla.client.group_descriptions import read_assignment
from ottla.client.group_membership import GroupMembership, MembershipSettings, RejoinError
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.client.scripted_broker import TOPIC
from tests.unit.client.scripted_coordinator import ScriptedCoordinator

SETTINGS = MembershipSettings(group_id="g", topics=(TOPIC,))


class LoneGroup(ScriptedCoordinator):
    """A group of one: gives member ids, makes its member the leader, hands back what that shares out."""

    def __init__(self) -> None:
        super().__init__(partitions=3)
        self.member_ids = 0
        self.generation = 0
        self.known = ""
        self.sync_codes: list[int] = []
        self.on(JoinGroupRequest, self._join)
        self.on(SyncGroupRequest, self._sync)
        self.on(HeartbeatRequest, lambda _: HeartbeatResponse())
        self.on(LeaveGroupRequest, lambda _: LeaveGroupResponse())

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id:
            self.member_ids += 1
            self.known = f"m{self.member_ids}"
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=self.known)
        if request.member_id != self.known:
            return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self.generation += 1
        member = JoinGroupResponseMember(member_id=self.known, metadata=request.protocols[0].metadata)
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name="range",
            leader=self.known,
            member_id=self.known,
            members=[member],
        )

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        if self.sync_codes:
            return SyncGroupResponse(error_code=self.sync_codes.pop(0))
        return SyncGroupResponse(assignment=request.assignments[0].assignment)


def test_the_leader_shares_out_and_gets_its_share() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        member = GroupMembership(cluster, SETTINGS)
        assert member.join() == tuple(TopicPartition(TOPIC, number) for number in range(3))
        assert (member.member_id, member.generation, member.leads, member.joined) == ("m1", 1, True, True)
        assert [request.member_id for request in broker.asked(JoinGroupRequest)] == ["", "m1"]


def test_a_follower_sends_no_shares() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        broker.on(
            JoinGroupRequest,
            lambda _: JoinGroupResponse(generation_id=4, protocol_name="range", leader="other", member_id="m"),
        )
        broker.on(SyncGroupRequest, lambda _: SyncGroupResponse())
        member = GroupMembership(cluster, SETTINGS)
        assert member.join() == ()
        assert (member.leads, list(broker.asked(SyncGroupRequest)[0].assignments)) == (False, [])


def test_a_rebalance_during_the_join_starts_it_over() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        broker.sync_codes = [ErrorCode.REBALANCE_IN_PROGRESS]
        member = GroupMembership(cluster, SETTINGS)
        assert len(member.join()) == 3
        assert member.generation == 2


def test_a_member_that_was_forgotten_gets_a_new_id() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        member = GroupMembership(cluster, SETTINGS)
        member.join()
        broker.known = ""
        broker.on(HeartbeatRequest, lambda _: HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        with pytest.raises(RejoinError) as caught:
            member.heartbeat()
        assert caught.value.lost
        assert not member.may_commit
        member.join()
        assert member.member_id == "m2"


def test_a_rebalance_leaves_time_to_commit() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        member = GroupMembership(cluster, SETTINGS)
        member.join()
        broker.on(HeartbeatRequest, lambda _: HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        with pytest.raises(RejoinError) as caught:
            member.heartbeat()
        assert not caught.value.lost
        assert (member.joined, member.may_commit, member.member_id) == (False, True, "m1")


def test_a_heartbeat_is_due_after_its_interval() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        member = GroupMembership(cluster, SETTINGS)
        assert member.heartbeat_due_ms() == 0
        member.join()
        assert 2_000 < member.heartbeat_due_ms() <= 3_000
        member.heartbeat()
        assert broker.asked(HeartbeatRequest)[0].generation_id == 1


def test_a_group_that_works_differently_is_an_error_that_says_so() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        broker.on(JoinGroupRequest, lambda _: JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        with pytest.raises(BrokerError, match="choose another group"):
            GroupMembership(cluster, SETTINGS).join()


@pytest.mark.parametrize("versions", [(0, 5), (0, 2)])
def test_leaving_names_the_member(versions: tuple[int, int]) -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        broker.on(LeaveGroupRequest, lambda _: LeaveGroupResponse(), versions)
        member = GroupMembership(cluster, SETTINGS)
        member.leave()
        member.join()
        member.leave()
        (left,) = broker.asked(LeaveGroupRequest)
        assert (left.member_id or left.members[0].member_id) == "m1"
        assert not member.joined


def test_an_answer_that_an_interrupt_left_behind_is_not_taken_for_another() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        member = GroupMembership(cluster, SETTINGS)
        member.join()
        (broker_known,) = cluster.brokers()
        connection = cluster.connection(broker_known.node_id)
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m1")
        connection.send(request, HeartbeatResponse)  # and nobody receives it
        member.heartbeat()
        assert connection is not cluster.connection(broker_known.node_id)


def test_the_leader_notices_new_partitions() -> None:
    with LoneGroup() as broker, Cluster(broker.settings()) as cluster:
        member = GroupMembership(cluster, SETTINGS)
        member.join()
        assert not member.topics_changed()
        broker.partitions = 4
        assert member.topics_changed()
        assert len(member.join()) == 4
        shares = broker.asked(SyncGroupRequest)[-1].assignments
        assert len(read_assignment(bytes(shares[0].assignment))) == 4
