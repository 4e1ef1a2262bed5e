"""JoinGroup: who comes in, who waits, and what the members are told."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.core.groups import classic_join
from ottla.core.groups.classic_commands import SyncGroup
from ottla.core.groups.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.core.groups.records import ClassicGroupRecord, ConsumerGroupRecord, TargetAssignmentRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.coordinator import RANGE, REBALANCE_MS, SESSION_MS, Coordinator, code_of, join, offers


def test_a_new_member_is_given_an_id_and_joins_with_it() -> None:
    c = Coordinator()
    first = c.ask(join())
    assert first.error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("c-")
    ticket = c.join_later(first.member_id)
    c.pass_ms(0)
    answer = c.joined(ticket)
    assert answer[:7] == (ErrorCode.NONE, first.member_id, 1, "consumer", "range", first.member_id, False)
    assert [member.member_id for member in answer.members] == [first.member_id]


def test_an_old_client_is_taken_in_at_once() -> None:
    c = Coordinator()
    ticket = c.join_later(member_id_required=False)
    c.pass_ms(0)
    assert c.joined(ticket).error_code is ErrorCode.NONE


def test_a_static_member_needs_no_second_join() -> None:
    c = Coordinator()
    ticket = c.join_later(group_instance_id="i")
    c.pass_ms(0)
    assert c.joined(ticket).member_id.startswith("i-")
    assert c.joined(ticket).members[0].group_instance_id == "i"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "foreign"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "foreign", "group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": offers("range", metadata=bytes(1_048_589))}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"protocols": offers(*"abcde", metadata=bytes(1_000_000))}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing_behind(fields: dict[str, Any], code: ErrorCode) -> None:
    c = Coordinator()
    assert c.code(join(**fields)) is code
    assert not c.shard.state.groups
    assert not c.log


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocols": offers("other")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "foreign"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "foreign", "group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_does_not_fit_the_group_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    c = Coordinator()
    c.stable(1)
    assert c.code(join(**fields)) is code
    assert c.group().state_name == "Stable"


def test_a_new_group_is_recorded_as_empty() -> None:
    c = Coordinator()
    c.new_member()
    assert c.records(ClassicGroupRecord) == [ClassicGroupRecord(group_id="g", current_state_timestamp=c.now_ms)]
    c.reload()
    assert c.group().state_name == "Empty"


def test_a_group_that_cannot_be_recorded_is_not_there() -> None:
    c = Coordinator()
    c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.code(join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ticket = c.join_later(group_instance_id="i")
    assert code_of(c.answers[ticket]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not c.shard.state.groups
    c.pass_ms(10 * REBALANCE_MS)


def test_the_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout() -> None:
    c = Coordinator(delay_ms=3000)
    tickets = []
    for number in range(7):
        tickets.append(c.join_later(group_instance_id=f"i{number}", rebalance_timeout_ms=10_000))
        c.pass_ms(1500 if number < 6 else 999)
    assert not c.answers
    c.pass_ms(1)
    assert {c.joined(ticket).generation_id for ticket in tickets} == {1}


def test_without_more_members_the_first_rebalance_takes_the_delay() -> None:
    c = Coordinator(delay_ms=3000)
    _, ticket = c.new_member()
    c.pass_ms(2999)
    assert ticket in c.open
    c.pass_ms(1)
    assert c.joined(ticket).generation_id == 1


def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen() -> None:
    c = Coordinator()
    tickets = [
        c.join_later(group_instance_id=instance, protocols=offers(*names))
        for instance, names in (("a", "xyz"), ("b", "yxz"), ("c", "zyx"[1:]), ("d", "yx"))
    ]
    c.pass_ms(0)
    assert {c.joined(ticket).protocol_name for ticket in tickets} == {"y"}


def test_all_rejoin_when_somebody_comes_and_the_leader_stays() -> None:
    c = Coordinator()
    old = c.stable(2)
    new, new_ticket = c.new_member()
    assert [c.beat(member_id) for member_id in old] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    tickets = [c.join_later(member_id) for member_id in old]
    answers = [c.joined(ticket) for ticket in (*tickets, new_ticket)]
    assert {(answer.generation_id, answer.leader) for answer in answers} == {(2, old[0])}
    assert [len(answer.members) for answer in answers] == [3, 0, 0]
    assert {member.member_id for member in answers[0].members} == {*old, new}


def test_who_does_not_rejoin_in_time_is_out() -> None:
    c = Coordinator()
    old = c.stable(3, session_timeout_ms=REBALANCE_MS * 2)
    tickets = [c.join_later(member_id, protocols=RANGE) for member_id in old[:2]]
    c.pass_ms(REBALANCE_MS - 1)
    assert tickets[0] in c.open
    c.pass_ms(1)
    assert c.joined(tickets[0]).generation_id == 2
    assert list(c.group().members) == old[:2]
    assert c.beat(old[2]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_counts() -> None:
    c = Coordinator()
    first = c.stable(1, rebalance_timeout_ms=5_000, session_timeout_ms=1_000_000)[0]
    _, ticket = c.new_member(rebalance_timeout_ms=20_000)
    c.pass_ms(19_999)
    assert ticket in c.open
    c.pass_ms(1)
    assert c.joined(ticket).generation_id == 2
    assert first not in c.group().members


def test_another_leader_is_chosen_when_the_leader_stays_away() -> None:
    c = Coordinator()
    old = c.stable(2, session_timeout_ms=REBALANCE_MS * 2)
    _, ticket = c.new_member()
    rejoined = c.join_later(old[1])
    c.pass_ms(REBALANCE_MS)
    assert c.joined(rejoined).leader == c.joined(ticket).leader == old[1]


def test_a_follower_that_rejoins_unchanged_is_told_where_the_group_stands() -> None:
    c = Coordinator()
    old = c.stable(2)
    answer = c.ask(join(old[1]))
    assert answer[:7] == (ErrorCode.NONE, old[1], 1, "consumer", "range", old[0], False)
    assert answer.members == ()
    assert c.group().state_name == "Stable"


@pytest.mark.parametrize(("index", "metadata"), [(0, b""), (1, b"changed")])
def test_the_leader_and_a_changed_member_make_everybody_rejoin(index: int, metadata: bytes) -> None:
    c = Coordinator()
    old = c.stable(2)
    ticket = c.join_later(old[index], protocols=offers("range", metadata=metadata))
    assert ticket in c.open
    assert c.group().state_name == "PreparingRebalance"


def test_a_member_that_missed_the_answer_gets_it_again_while_the_assignment_is_awaited() -> None:
    c = Coordinator()
    members = [c.new_member()[0] for _ in range(2)]
    c.pass_ms(0)
    again = [c.ask(join(member_id)) for member_id in members]
    assert [(answer.generation_id, len(answer.members)) for answer in again] == [(1, 2), (1, 0)]
    ticket = c.join_later(members[1], protocols=offers("range", metadata=b"changed"))
    assert ticket in c.open
    assert c.group().state_name == "PreparingRebalance"


def test_of_two_joins_of_one_member_only_the_later_waits() -> None:
    c = Coordinator(delay_ms=3000)
    member_id, first = c.new_member()
    second = c.join_later(member_id)
    assert code_of(c.answers[first]) is ErrorCode.REBALANCE_IN_PROGRESS
    c.pass_ms(3000)
    assert c.joined(second).error_code is ErrorCode.NONE


def test_a_pending_member_is_waited_for_until_its_session_ends() -> None:
    c = Coordinator()
    old = c.stable(1)[0]
    pending = c.ask(join()).member_id
    assert c.group().state_name == "Stable"
    ticket = c.join_later(old)
    assert ticket in c.open
    c.pass_ms(SESSION_MS)
    assert c.joined(ticket).generation_id == 2
    assert c.code(join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_join, "PENDING_MEMBERS_MAX", 3)
    c = Coordinator()
    ids = [c.ask(join()).member_id for _ in range(5)]
    assert list(c.group().pending) == ids[2:]
    assert c.code(join(ids[0])) is ErrorCode.UNKNOWN_MEMBER_ID
    assert c.join_later(ids[4]) in c.open


def test_the_id_of_a_pending_member_is_for_somebody_without_an_instance_id() -> None:
    c = Coordinator()
    pending = c.ask(join()).member_id
    assert c.code(join(pending, group_instance_id="i")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_first_join_does_not_wait_for_ever() -> None:
    c = Coordinator()
    c.stable(1, rebalance_timeout_ms=10_000_000, session_timeout_ms=1_800_000)
    _, ticket = c.new_member()
    c.pass_ms(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert code_of(c.answers[ticket]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_id_of_any_length_gives_a_member_id_that_fits() -> None:
    c = Coordinator()
    assert len(c.ask(join(client_id="\U0001f600" * 30_000)).member_id.encode()) <= 32_767


# How large a group may be.


def test_a_full_group_takes_nobody_in() -> None:
    c = Coordinator({"group.max.size": "2"})
    members = c.stable(2)
    assert c.code(join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert c.code(join(members[1])) is ErrorCode.NONE
    assert c.group().state_name == "Stable"


def test_while_members_join_the_last_ones_are_turned_away() -> None:
    c = Coordinator({"group.max.size": "2"}, delay_ms=3000)
    ids = [c.ask(join()).member_id for _ in range(3)]
    tickets = [c.join_later(member_id) for member_id in ids]
    assert code_of(c.answers[tickets[2]]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    c.pass_ms(6000)
    assert {c.joined(ticket).generation_id for ticket in tickets[:2]} == {1}
    assert not c.group().pending


def test_a_group_that_is_too_large_after_a_restart_shrinks() -> None:
    c = Coordinator()
    members = c.stable(3)
    c.config = c.config.with_static({"group.max.size": "2"})
    c.reload()
    assert c.group().state_name == "PreparingRebalance"
    tickets = [c.join_later(member_id) for member_id in members]
    assert [code_of(c.answers[ticket]) for ticket in tickets] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert c.joined(tickets[0]).generation_id == 2


def test_a_static_member_comes_back_into_a_full_group() -> None:
    c = Coordinator({"group.max.size": "1"})
    static_group(c, "a")
    assert c.code(join(group_instance_id="a")) is ErrorCode.NONE
    assert c.code(join(group_instance_id="b")) is ErrorCode.GROUP_MAX_SIZE_REACHED


# Static members.


def static_group(c: Coordinator, *instances: str, **fields: Any) -> list[str]:
    tickets = [c.join_later(group_instance_id=instance, **fields) for instance in instances]
    c.pass_ms(0)
    c.sync_all()
    return [c.joined(ticket).member_id for ticket in tickets]


def test_a_static_member_comes_back_and_nobody_notices() -> None:
    c = Coordinator()
    leader, follower = static_group(c, "a", "b")
    answer = c.ask(join(group_instance_id="b"))
    assert answer[:7] == (ErrorCode.NONE, answer.member_id, 1, "consumer", "range", leader, False)
    assert answer.member_id != follower
    assert c.group().state_name == "Stable"
    assert c.ask(c.sync(answer.member_id, group_instance_id="b")).assignment == follower.encode()
    assert c.beat(leader) is ErrorCode.NONE
    for code in (
        c.beat(follower, instance_id="b"),
        c.code(c.sync(follower, group_instance_id="b")),
        c.code(join(follower, group_instance_id="b")),
    ):
        assert code is ErrorCode.FENCED_INSTANCE_ID
    assert c.beat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    c.reload()
    assert c.beat(answer.member_id, instance_id="b") is ErrorCode.NONE


@pytest.mark.parametrize("supported", [True, False])
def test_a_leader_that_comes_back_does_not_assign(supported: bool) -> None:
    c = Coordinator()
    leader, follower = static_group(c, "a", "b")
    answer = c.ask(join(group_instance_id="a", skip_assignment_supported=supported))
    assert answer.skip_assignment is supported
    assert answer.leader == (answer.member_id if supported else leader)
    assert {member.member_id for member in answer.members} == ({answer.member_id, follower} if supported else set())
    assert c.group().leader == answer.member_id


def test_a_static_member_that_changes_the_protocol_makes_everybody_rejoin() -> None:
    c = Coordinator()
    old = static_group(c, "a", protocols=offers("x", "y"))
    ticket = c.join_later(group_instance_id="a", protocols=offers("y"))
    assert c.joined(ticket).protocol_name == "y"
    assert c.joined(ticket).generation_id == 2
    assert old[0] not in c.group().members


def test_a_static_member_that_comes_back_in_between_fences_the_one_that_waits() -> None:
    c = Coordinator(delay_ms=3000)
    first = c.join_later(group_instance_id="a")
    second = c.join_later(group_instance_id="a")
    assert code_of(c.answers[first]) is ErrorCode.FENCED_INSTANCE_ID
    c.pass_ms(3000)
    other = c.joined(second).member_id
    waiting = c.send(c.sync(other)) if c.group().leader != other else None
    third = c.join_later(group_instance_id="a")
    assert waiting is None
    assert c.joined(third).generation_id == 2


def test_a_follower_that_waits_for_its_assignment_is_fenced() -> None:
    c = Coordinator()
    tickets = [c.join_later(group_instance_id=instance) for instance in "ab"]
    c.pass_ms(0)
    leader, follower = (c.joined(ticket).member_id for ticket in tickets)
    waiting = c.send(c.sync(follower))
    rejoined = c.join_later(group_instance_id="b")
    assert code_of(c.answers[waiting]) is ErrorCode.FENCED_INSTANCE_ID
    c.join_later(leader, group_instance_id="a")
    assert c.joined(rejoined).generation_id == 2


def test_a_static_member_that_cannot_be_recorded_does_not_replace() -> None:
    c = Coordinator()
    old = static_group(c, "a")[0]
    c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.code(join(group_instance_id="a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.beat(old, instance_id="a") is ErrorCode.NONE
    assert list(c.group().members) == [old]
    assert not c.open


def test_static_members_stay_through_a_rebalance_but_have_to_ask_for_their_assignment() -> None:
    c = Coordinator()
    static_group(c, "a", "b", session_timeout_ms=2 * REBALANCE_MS)
    member_id, ticket = c.new_member(session_timeout_ms=2 * REBALANCE_MS)
    c.pass_ms(REBALANCE_MS)
    assert c.joined(ticket).leader == member_id
    assert len(c.group().members) == 3
    assert c.code(SyncGroup(group_id="g", generation_id=2, member_id=member_id)) is ErrorCode.NONE
    c.pass_ms(REBALANCE_MS)
    assert not c.group().static_members


def test_static_members_that_all_stay_away_are_waited_for_until_their_sessions_end() -> None:
    c = Coordinator()
    leader, _ = static_group(c, "a", "b", session_timeout_ms=3 * REBALANCE_MS)
    ticket = c.join_later(leader, group_instance_id="a")
    c.leave(leader)
    assert code_of(c.answers[ticket]) is ErrorCode.UNKNOWN_MEMBER_ID
    c.pass_ms(2 * REBALANCE_MS)
    assert c.group().state_name == "PreparingRebalance"
    c.pass_ms(REBALANCE_MS)
    assert c.group().state_name == "Empty"


# Groups of the other kind.


def empty_consumer_group(c: Coordinator) -> None:
    for record in (
        ConsumerGroupRecord(group_id="g", epoch=3),
        TargetAssignmentRecord(group_id="g", assignment_epoch=3),
    ):
        c.log.append((record, -1))
        c.shard.replay(record, -1)


def test_an_empty_consumer_group_becomes_a_classic_group() -> None:
    c = Coordinator()
    empty_consumer_group(c)
    _, ticket = c.new_member()
    c.pass_ms(0)
    assert c.joined(ticket).generation_id == 1
    assert [type(record) for record in c.records(object)[2:]][-1] is ClassicGroupRecord
    assert {record.group_id for record in c.records(ConsumerGroupRecord) if record.gone} == {"g"}
    c.reload()
    assert c.group().kind == "classic"


def test_a_consumer_group_stays_when_its_end_cannot_be_recorded() -> None:
    c = Coordinator()
    empty_consumer_group(c)
    c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.code(join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.shard.state.groups["g"].kind == "consumer"
