"""SyncGroup: the leader's assignment makes a generation stable."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.core.groups.classic_commands import SyncedGroup, SyncGroup
from ottla.core.groups.records import ClassicGroupRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.coordinator import REBALANCE_MS, SESSION_MS, Coordinator, code_of, join, offers


def joined_group(c: Coordinator, size: int = 2, **fields: Any) -> list[str]:
    members = [c.new_member(**fields)[0] for _ in range(size)]
    c.pass_ms(0)
    assert c.group().state_name == "CompletingRebalance"
    return members


def test_everybody_gets_what_the_leader_assigned() -> None:
    c = Coordinator()
    leader, follower, late = joined_group(c, 3)
    waiting = c.send(c.sync(follower))
    assert waiting in c.open
    own = c.ask(c.sync(leader, (leader, b"L"), (follower, b"F"), (late, b"Z"), ("stranger", b"S")))
    assert own == SyncedGroup(ErrorCode.NONE, "consumer", "range", b"L")
    assert c.answers[waiting].assignment == b"F"
    assert c.ask(c.sync(late)).assignment == b"Z"
    assert c.group().state_name == "Stable"


def test_a_member_that_the_leader_left_out_has_nothing_to_do() -> None:
    c = Coordinator()
    leader, follower = joined_group(c)
    c.send(c.sync(leader, (leader, b"L")))
    assert c.ask(c.sync(follower)) == SyncedGroup(ErrorCode.NONE, "consumer", "range", b"")


def test_the_generation_is_recorded_when_it_is_stable() -> None:
    c = Coordinator()
    leader, follower = joined_group(c, protocols=offers("range", metadata=b"m"))
    assert len(c.records(ClassicGroupRecord)) == 1
    c.send(c.sync(leader, (leader, b"L"), (follower, b"F")))
    record = c.records(ClassicGroupRecord)[-1]
    assert (record.generation, record.protocol_type, record.protocol, record.leader) == (1, "consumer", "range", leader)
    assert [tuple(member) for member in record.members] == [
        (leader, None, "c", "/127.0.0.1", REBALANCE_MS, SESSION_MS, b"m", b"L"),
        (follower, None, "c", "/127.0.0.1", REBALANCE_MS, SESSION_MS, b"m", b"F"),
    ]
    c.reload()
    assert c.ask(c.sync(follower)).assignment == b"F"
    assert c.beat(leader) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "foreign"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "foreign"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_only_members_of_the_generation_sync(fields: dict[str, Any], code: ErrorCode) -> None:
    c = Coordinator()
    leader = joined_group(c, 1)[0]
    assert c.code(SyncGroup(**{"group_id": "g", "generation_id": 1, "member_id": leader, **fields})) is code


def test_while_members_rejoin_nobody_syncs() -> None:
    c = Coordinator()
    leader, follower = c.stable(2)
    c.join_later(leader)
    assert c.code(c.sync(follower)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_waits_for_an_assignment_rejoins_when_somebody_comes() -> None:
    c = Coordinator()
    _, follower = joined_group(c)
    waiting = c.send(c.sync(follower))
    c.new_member()
    assert code_of(c.answers[waiting]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_of_two_syncs_of_one_member_only_the_later_waits() -> None:
    c = Coordinator()
    leader, follower = joined_group(c)
    first, second = c.send(c.sync(follower)), c.send(c.sync(follower))
    assert code_of(c.answers[first]) is ErrorCode.REBALANCE_IN_PROGRESS
    c.send(c.sync(leader))
    assert code_of(c.answers[second]) is ErrorCode.NONE


def test_an_assignment_that_cannot_be_recorded_is_given_to_nobody() -> None:
    c = Coordinator()
    leader, follower = joined_group(c)
    waiting = c.send(c.sync(follower))
    c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    own = c.ask(c.sync(leader, (follower, b"F")))
    assert own == c.answers[waiting] == SyncedGroup(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert c.group().state_name == "PreparingRebalance"
    assert c.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    c.append_error = None
    tickets = [c.join_later(member_id) for member_id in (leader, follower)]
    assert {c.joined(ticket).generation_id for ticket in tickets} == {2}


def test_an_assignment_of_100_mb_is_refused_without_making_a_record() -> None:
    c = Coordinator()
    leader, follower = joined_group(c)
    waiting = c.send(c.sync(follower))
    before = len(c.log)
    blob = bytes(100_000_000)
    assert c.code(c.sync(leader, (follower, blob))) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert code_of(c.answers[waiting]) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(c.log) == before
    assert c.group().state_name == "PreparingRebalance"


def test_who_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    c = Coordinator()
    leader, follower = joined_group(c, session_timeout_ms=2 * REBALANCE_MS)
    c.send(c.sync(leader))
    assert c.group().state_name == "Stable"
    c.pass_ms(REBALANCE_MS - 1)
    assert c.beat(leader) is ErrorCode.NONE
    c.pass_ms(1)
    assert c.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert c.beat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_assigns_is_out_and_those_who_wait_rejoin() -> None:
    c = Coordinator()
    leader, follower = joined_group(c, session_timeout_ms=2 * REBALANCE_MS)
    waiting = c.send(c.sync(follower))
    c.pass_ms(REBALANCE_MS)
    assert code_of(c.answers[waiting]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(c.group().members) == [follower]
    assert c.joined(c.join_later(follower)).leader == follower
    assert c.code(join(leader)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_for_the_others_is_not_given_up() -> None:
    c = Coordinator()
    leader, follower = joined_group(c)
    waiting = c.send(c.sync(follower))
    for _ in range(5):
        c.pass_ms(SESSION_MS - 1)
        assert c.beat(leader) is ErrorCode.NONE
    assert waiting in c.open
    c.send(c.sync(leader, (follower, b"F")))
    assert c.answers[waiting].assignment == b"F"
    c.pass_ms(SESSION_MS - 1)
    assert c.beat(follower) is ErrorCode.NONE
