"""How a classic group gets from one generation to the next, and how members are given up.

Functions here take an outcome and put into it what a step comes to: answers for those who waited and, when a group has
become empty, the record that says so. They change what is in no record, so they may be called while deciding, and when
a record could not be written.

Timers, by the first item of their keys:
- `classic.session` (group, member): the member was not heard of, or nobody joined with an id that was handed out. A
  heartbeat moves the member's deadline only. The timer looks when it is due and is set again where there is time left.
- `classic.join` (group): members have had the time to rejoin; at first, to come.
- `classic.sync` (group): members have had the time to ask for their assignment.
- `classic.rebalance` (group): somebody else wants the group to rebalance.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ottla.core.coordination import Outcome
from ottla.core.groups.classic_commands import JoinedGroup, SyncedGroup
from ottla.core.groups.classic_group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup
from ottla.core.groups.classic_member import NEVER_MS, ClassicMember
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.table import GroupState, TimerKey
from ottla.model.errors import ErrorCode

SESSION: Final = "classic.session"
JOIN: Final = "classic.join"
SYNC: Final = "classic.sync"
REBALANCE: Final = "classic.rebalance"

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long the first join of a member may wait: its client may be gone, and nothing else tells."""

JOIN_RETRY_MS_MIN: Final = 1000
"""The shortest pause before a group whose members all stay away is looked at again."""

GroupOutcome: TypeAlias = Outcome[GroupRecord]


def expect(state: GroupState, group: ClassicGroup, member: ClassicMember, timeout_ms: int, now_ms: int) -> None:
    """From now on the member has this long to be heard of."""
    member.deadline_ms = deadline_ms = now_ms + timeout_ms
    if deadline_ms < member.armed_ms:
        member.armed_ms = deadline_ms
        state.timers.set((SESSION, group.group_id, member.member_id), deadline_ms)


def expect_heartbeat(state: GroupState, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
    expect(state, group, member, member.session_timeout_ms, now_ms)


def answer_join(group: ClassicGroup, member: ClassicMember, answer: JoinedGroup, outcome: GroupOutcome) -> None:
    """The member's JoinGroup, if one waits, gets this answer."""
    if member.join_ticket is not None:
        outcome.answer(member.join_ticket, answer)
        group.wait_for_join(member, None)


def answer_sync(member: ClassicMember, answer: SyncedGroup, outcome: GroupOutcome) -> None:
    """The member's SyncGroup, if one waits, gets this answer."""
    if member.sync_ticket is not None:
        outcome.answer(member.sync_ticket, answer)
        member.sync_ticket = None


def answer_waiting(group: ClassicGroup, member: ClassicMember, error: ErrorCode, outcome: GroupOutcome) -> None:
    """Whatever the member waits for ends with this error."""
    unknown = error is ErrorCode.UNKNOWN_MEMBER_ID
    answer_join(group, member, JoinedGroup(error, "" if unknown else member.member_id), outcome)
    answer_sync(member, SyncedGroup(error), outcome)


def answer_everybody(group: ClassicGroup, error: ErrorCode, outcome: GroupOutcome) -> None:
    for member in group.members.values():
        answer_waiting(group, member, error, outcome)


def remove_member(state: GroupState, group: ClassicGroup, member: ClassicMember, outcome: GroupOutcome) -> None:
    """The member is no longer in the group; what it waits for is answered. What follows from that is the caller's."""
    answer_waiting(group, member, ErrorCode.UNKNOWN_MEMBER_ID, outcome)
    state.timers.cancel((SESSION, group.group_id, member.member_id))
    group.remove(member.member_id)


def cancel_timers(state: GroupState, group: ClassicGroup) -> None:
    """Nothing of this group is due any more."""
    for name in (JOIN, SYNC, REBALANCE):
        state.timers.cancel((name, group.group_id))
    for member_id in (*group.members, *group.pending):
        state.timers.cancel((SESSION, group.group_id, member_id))


def rebalance_soon(state: GroupState, group_id: str, now_ms: int) -> None:
    """The next tick lets the group rebalance if it is a stable classic group then, e.g. one that was converted."""
    state.timers.set((REBALANCE, group_id), now_ms)


def rebalance_or_complete(state: GroupState, group: ClassicGroup, outcome: GroupOutcome, now_ms: int) -> None:
    """Members have changed: begin a rebalance, or see whether the one under way is waiting for nobody any more."""
    if group.state is not PREPARING:
        prepare_rebalance(state, group, outcome, now_ms)
    elif not group.initial:
        complete_if_all_joined(state, group, outcome, now_ms)


def complete_if_all_joined(state: GroupState, group: ClassicGroup, outcome: GroupOutcome, now_ms: int) -> None:
    if group.state is PREPARING and group.all_joined:
        complete_join(state, group, outcome, now_ms)


def prepare_rebalance(state: GroupState, group: ClassicGroup, outcome: GroupOutcome, now_ms: int) -> None:
    """Everybody has to join again. An empty group waits for more members first."""
    if group.state is COMPLETING:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                answer_sync(member, SyncedGroup(ErrorCode.REBALANCE_IN_PROGRESS), outcome)
                expect_heartbeat(state, group, member, now_ms)
    group.pending_sync.clear()
    state.timers.cancel((SYNC, group.group_id))
    group.initial = group.state is EMPTY
    group.enter(PREPARING, now_ms)
    if group.initial:
        delay_ms = max(state.config().group_initial_rebalance_delay_ms, 0)
        group.new_member_added = False
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        state.timers.set((JOIN, group.group_id), now_ms + delay_ms)
    elif group.all_joined:
        complete_join(state, group, outcome, now_ms)
    else:
        state.timers.set((JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)


def join_due(state: GroupState, key: TimerKey, now_ms: int) -> GroupOutcome:
    """Whoever has not joined by now is late. At first the wait is made longer while members come."""
    outcome: GroupOutcome = Outcome()
    group = state.groups.get(key[1])
    if not isinstance(group, ClassicGroup) or group.state is not PREPARING:
        return outcome
    if group.initial and group.new_member_added and group.initial_remaining_ms:
        group.new_member_added = False
        delay_ms = min(max(state.config().group_initial_rebalance_delay_ms, 0), group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        state.timers.set(key, now_ms + delay_ms)
    else:
        complete_join(state, group, outcome, now_ms)
    return outcome


def complete_join(state: GroupState, group: ClassicGroup, outcome: GroupOutcome, now_ms: int) -> None:
    """The next generation, with those who have joined and the static members. Without anybody the group is empty."""
    state.timers.cancel((JOIN, group.group_id))
    for member in [m for m in group.members.values() if m.join_ticket is None and m.group_instance_id is None]:
        remove_member(state, group, member, outcome)
    if not group.elect() and group.members:
        # Static members only, and none of them has joined: their sessions decide how long the group waits.
        state.timers.set((JOIN, group.group_id), now_ms + max(group.rebalance_timeout_ms, JOIN_RETRY_MS_MIN))
        return
    group.next_generation(now_ms)
    if group.state is EMPTY:
        outcome.records.append(group.to_record(now_ms, {}))
        return
    for member in group.members.values():
        answer_join(group, member, joined(group, member), outcome)
        expect_heartbeat(state, group, member, now_ms)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    state.timers.set((SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)


def joined(group: ClassicGroup, member: ClassicMember, *, skip_assignment: bool = False) -> JoinedGroup:
    """What a member is told about the generation that it is in."""
    leads = group.leader == member.member_id
    return JoinedGroup(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader or "",
        skip_assignment,
        group.joined_members() if leads else (),
    )


def sync_due(state: GroupState, key: TimerKey, now_ms: int) -> GroupOutcome:
    """Members that did not ask for their assignment are given up, and the others rebalance."""
    outcome: GroupOutcome = Outcome()
    group = state.groups.get(key[1])
    if isinstance(group, ClassicGroup) and group.state in (COMPLETING, STABLE) and group.pending_sync:
        for member_id in sorted(group.pending_sync):
            remove_member(state, group, group.members[member_id], outcome)
        prepare_rebalance(state, group, outcome, now_ms)
    return outcome


def session_due(state: GroupState, key: TimerKey, now_ms: int) -> GroupOutcome:
    """A member is given up if it is not waiting for us and was not heard of in between."""
    outcome: GroupOutcome = Outcome()
    group = state.groups.get(key[1])
    if not isinstance(group, ClassicGroup):
        return outcome
    member = group.members.get(key[2])
    if member is None:
        if key[2] in group.pending:
            del group.pending[key[2]]
            complete_if_all_joined(state, group, outcome, now_ms)
    elif member.deadline_ms > now_ms:
        member.armed_ms = member.deadline_ms
        state.timers.set(key, member.deadline_ms)
    elif member.excused:
        member.armed_ms = NEVER_MS
    else:
        remove_member(state, group, member, outcome)
        if group.state is PREPARING:
            complete_if_all_joined(state, group, outcome, now_ms)
        else:
            prepare_rebalance(state, group, outcome, now_ms)
    return outcome


def rebalance_due(state: GroupState, key: TimerKey, now_ms: int) -> GroupOutcome:
    outcome: GroupOutcome = Outcome()
    group = state.groups.get(key[1])
    if isinstance(group, ClassicGroup) and group.state is STABLE:
        prepare_rebalance(state, group, outcome, now_ms)
    return outcome
