"""Heartbeat, LeaveGroup, sessions and the way through a restart."""

from __future__ import annotations

import pytest

from ottla.core.groups.classic_commands import Heartbeat, LeaveGroup, LeavingMember
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.records import ClassicGroupRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.coordinator import REBALANCE_MS, SESSION_MS, Coordinator, code_of, join


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (Heartbeat("", 1, "m"), ErrorCode.INVALID_GROUP_ID),
        (Heartbeat("other", 1, "m"), ErrorCode.UNKNOWN_MEMBER_ID),
        (Heartbeat("g", 1, "foreign"), ErrorCode.UNKNOWN_MEMBER_ID),
        (Heartbeat("g", 1, ""), ErrorCode.UNKNOWN_MEMBER_ID),
        (Heartbeat("g", 1, "foreign", "i"), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_is_no_member_is_not_heard(command: Heartbeat, code: ErrorCode) -> None:
    c = Coordinator()
    c.stable(1)
    assert c.code(command) is code


def test_a_heartbeat_of_another_generation_is_refused() -> None:
    c = Coordinator()
    member_id = c.stable(1)[0]
    assert c.beat(member_id, 0) is c.beat(member_id, 2) is ErrorCode.ILLEGAL_GENERATION


def test_heartbeats_keep_a_member_alive_and_silence_does_not() -> None:
    c = Coordinator()
    first, second = c.stable(2)
    for code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
        c.pass_ms(SESSION_MS - 1)
        assert c.beat(first) is code
    assert list(c.group().members) == [first]
    assert c.beat(second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_is_given_up_when_its_session_ends_and_not_before() -> None:
    c = Coordinator()
    first = c.stable(1)[0]
    c.pass_ms(SESSION_MS // 2)
    c.beat(first)
    c.pass_ms(SESSION_MS - 1)
    assert first in c.group().members
    c.pass_ms(1)
    assert c.group().state_name == "Empty"
    assert c.records(ClassicGroupRecord)[-1] == ClassicGroupRecord(
        group_id="g", protocol_type="consumer", generation=2, current_state_timestamp=c.now_ms
    )


def test_a_heartbeat_costs_no_timer() -> None:
    c = Coordinator()
    member_id = c.stable(1)[0]
    heap = c.shard.state.timers._heap
    before = len(heap)
    for _ in range(1000):
        assert c.beat(member_id) is ErrorCode.NONE
    assert len(heap) == before


def test_a_commit_keeps_a_member_alive() -> None:
    c = Coordinator()
    member_id = c.stable(1)[0]
    for _ in range(3):
        c.pass_ms(SESSION_MS - 1)
        c.group().heard_from(member_id, c.now_ms)
    c.group().heard_from("stranger", c.now_ms)
    assert c.beat(member_id) is ErrorCode.NONE


# Leaving.


def test_the_others_rejoin_when_somebody_leaves() -> None:
    c = Coordinator()
    leader, follower = c.stable(2)
    assert c.leave(leader) == [ErrorCode.NONE]
    assert c.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert c.joined(c.join_later(follower)).leader == follower


def test_when_the_last_one_leaves_the_group_is_empty() -> None:
    c = Coordinator()
    members = c.stable(3)
    assert c.leave(*members) == [ErrorCode.NONE] * 3
    assert c.group().state_name == "Empty"
    record = c.records(ClassicGroupRecord)[-1]
    assert (record.generation, record.members, record.protocol, record.leader) == (2, (), None, None)
    c.reload()
    assert (c.group().state_name, c.group().generation) == ("Empty", 2)


@pytest.mark.parametrize(
    ("leaving", "code"),
    [
        (LeavingMember("foreign"), ErrorCode.UNKNOWN_MEMBER_ID),
        (LeavingMember(""), ErrorCode.UNKNOWN_MEMBER_ID),
        (LeavingMember("", "unknown"), ErrorCode.UNKNOWN_MEMBER_ID),
        (LeavingMember("foreign", "i"), ErrorCode.FENCED_INSTANCE_ID),
        (LeavingMember("", "i"), ErrorCode.NONE),
    ],
)
def test_each_one_who_leaves_gets_an_answer_of_its_own(leaving: LeavingMember, code: ErrorCode) -> None:
    c = Coordinator()
    ticket = c.join_later(group_instance_id="i")
    c.pass_ms(0)
    c.sync_all()
    (left,) = c.ask(LeaveGroup(group_id="g", members=(leaving,)))
    assert left == (leaving.member_id, leaving.group_instance_id, code)
    assert (c.joined(ticket).member_id in c.group().members) is (code is not ErrorCode.NONE)


def test_nobody_can_leave_a_group_that_is_not_there() -> None:
    c = Coordinator()
    assert c.leave("m", LeavingMember("", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert c.code(LeaveGroup(group_id="", members=())) is ErrorCode.INVALID_GROUP_ID


def test_a_pending_member_can_leave_and_is_not_waited_for_any_more() -> None:
    c = Coordinator()
    old = c.stable(1)[0]
    pending = c.ask(join()).member_id
    ticket = c.join_later(old)
    assert c.leave(pending) == [ErrorCode.NONE]
    assert c.joined(ticket).generation_id == 2


@pytest.mark.parametrize("at", ["join", "sync"])
def test_who_leaves_waits_no_longer(at: str) -> None:
    c = Coordinator()
    members = c.stable(2)
    ticket = c.join_later(members[0])
    if at == "sync":
        c.join_later(members[1])
        ticket = c.send(c.sync(members[1]))
        members.reverse()
    assert c.leave(members[0]) == [ErrorCode.NONE]
    assert code_of(c.answers[ticket]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_empty_starts_anew_with_the_next_generation() -> None:
    c = Coordinator()
    c.leave(*c.stable(1))
    ticket = c.join_later(group_instance_id="i", protocol_type="connect")
    c.pass_ms(0)
    assert (c.joined(ticket).generation_id, c.joined(ticket).protocol_type) == (3, "connect")


def test_an_empty_group_that_cannot_be_recorded_is_empty_all_the_same() -> None:
    c = Coordinator()
    members = c.stable(1)
    c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.code(LeaveGroup(group_id="g", members=(LeavingMember(members[0]),))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.group().state_name == "Empty"
    c.append_error = None
    c.reload()
    assert c.beat(members[0]) is ErrorCode.NONE


# Loading.


def test_after_a_restart_everybody_has_a_whole_session_timeout() -> None:
    c = Coordinator()
    members = c.stable(2)
    c.pass_ms(SESSION_MS - 1)
    c.reload()
    c.pass_ms(SESSION_MS - 1)
    assert [c.beat(member_id) for member_id in members] == [ErrorCode.NONE] * 2
    c.pass_ms(SESSION_MS)
    assert c.group().state_name == "Empty"


def test_a_rebalance_is_lost_in_a_restart_and_members_go_on_in_their_generation() -> None:
    c = Coordinator()
    leader, follower = c.stable(2)
    c.join_later(leader)
    assert c.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    c.reload()
    assert c.beat(follower) is c.beat(leader) is ErrorCode.NONE


def test_while_loading_the_last_record_counts() -> None:
    c = Coordinator()
    record = ClassicGroupRecord(group_id="g", protocol_type="consumer", generation=7)
    c.log += [(record, -1), (ClassicGroupRecord(group_id="g", gone=True), -1)]
    c.reload()
    assert not c.shard.state.groups
    c.log.append((record, -1))
    c.reload()
    assert c.group().generation == 7


def test_a_tombstone_takes_the_group_and_its_timers() -> None:
    c = Coordinator()
    c.stable(2)
    c.ask(join())
    timers = len(c.shard.state.timers)
    assert timers > 2
    c.shard.replay(ClassicGroupRecord(group_id="g", gone=True), -1)
    assert not c.shard.state.groups
    assert len(c.shard.state.timers) == timers - 3


def test_a_group_that_turns_classic_in_operation_expects_heartbeats() -> None:
    c = Coordinator()
    members = c.stable(1)
    record = c.records(ClassicGroupRecord)[-1]
    c.shard.replay(ClassicGroupRecord(group_id="g", gone=True), -1)
    c.shard.replay(record, -1)
    assert isinstance(c.shard.state.groups["g"], ClassicGroup)
    assert c.beat(members[0]) is ErrorCode.NONE
    c.pass_ms(SESSION_MS)
    assert c.group().state_name == "Empty"


def test_nothing_waits_longer_than_the_rebalance_timeout() -> None:
    c = Coordinator()
    c.stable(3)
    c.new_member()
    c.pass_ms(REBALANCE_MS)
    assert not c.open
