"""Classic groups as a part of the shard: what is decided, replayed and due.

Requests of classic members for a group that speaks the new protocol go to `migration`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.core.coordination import Checks, Command, Outcome, Ticket
from ottla.core.groups import classic_join, classic_sync
from ottla.core.groups.classic_commands import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    SyncGroup,
    check_named,
)
from ottla.core.groups.classic_group import EMPTY, PREPARING, STABLE, ClassicGroup
from ottla.core.groups.classic_rebalance import (
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    GroupOutcome,
    cancel_timers,
    expect_heartbeat,
    join_due,
    prepare_rebalance,
    rebalance_due,
    rebalance_or_complete,
    remove_member,
    session_due,
    sync_due,
)
from ottla.core.groups.group import Group
from ottla.core.groups.migration import CLASSIC_DECISIONS
from ottla.core.groups.records import ClassicGroupRecord
from ottla.core.groups.table import GroupState, TimerKey
from ottla.model.errors import ApiError, ErrorCode

NO_ERROR: Final = ErrorCode.NONE
REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS


def _join_group(state: GroupState, command: JoinGroup, ticket: Ticket, now_ms: int) -> GroupOutcome:
    classic_join.check_join(state, command)
    group = state.groups.get(command.group_id)
    if isinstance(group, ClassicGroup):
        return classic_join.join(state, group, command, ticket, now_ms)
    if group is None or group.is_empty:
        return classic_join.join_new_group(state, group, command, ticket, now_ms)
    return CLASSIC_DECISIONS[JoinGroup](state, command, ticket, now_ms)


def _sync_group(state: GroupState, command: SyncGroup, ticket: Ticket, now_ms: int) -> GroupOutcome:
    group = _group_with_members(state, command)
    if isinstance(group, ClassicGroup):
        return classic_sync.sync(state, group, command, ticket, now_ms)
    return CLASSIC_DECISIONS[SyncGroup](state, command, ticket, now_ms)


def _group_with_members(state: GroupState, command: SyncGroup | Heartbeat) -> Group:
    check_named(command, state.config())
    group = state.groups.get(command.group_id)
    if group is None or group.is_empty:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {command.group_id} has no members: join it")
    return group


def _heartbeat(state: GroupState, command: Heartbeat, ticket: Ticket, now_ms: int) -> GroupOutcome:
    """The most frequent request of all: nothing here depends on how many members there are, and who is right is asked
    only where something looks wrong."""
    group = state.groups.get(command.group_id)
    if type(group) is not ClassicGroup:
        _group_with_members(state, command)
        return CLASSIC_DECISIONS[Heartbeat](state, command, ticket, now_ms)
    member, instance_id = group.members.get(command.member_id), command.group_instance_id
    if member is None or (instance_id is not None and instance_id != member.group_instance_id):
        member = group.check_member(command.member_id, instance_id)
    if command.generation_id != group.generation:
        group.check_generation(command.generation_id)
    member.deadline_ms = deadline_ms = now_ms + member.session_timeout_ms
    if deadline_ms < member.armed_ms:
        expect_heartbeat(state, group, member, now_ms)
    return Outcome(None, [(ticket, REBALANCE_IN_PROGRESS if group.state is PREPARING else NO_ERROR)])


def _leave_group(state: GroupState, command: LeaveGroup, ticket: Ticket, now_ms: int) -> GroupOutcome:
    check_named(command, state.config())
    group = state.groups.get(command.group_id)
    if group is not None and not isinstance(group, ClassicGroup):
        return CLASSIC_DECISIONS[LeaveGroup](state, command, ticket, now_ms)
    outcome: GroupOutcome = Outcome()
    if group is None:
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        outcome.answer(ticket, tuple(LeftMember(m.member_id, m.group_instance_id, unknown) for m in command.members))
        return outcome
    left = tuple(_leave(state, group, member, outcome) for member in command.members)
    outcome.answer(ticket, left)
    if group.state is not EMPTY and any(member.error_code is ErrorCode.NONE for member in left):
        rebalance_or_complete(state, group, outcome, now_ms)
    return outcome


def _leave(state: GroupState, group: ClassicGroup, leaving: LeavingMember, outcome: GroupOutcome) -> LeftMember:
    """One member leaves. Without a member id it is whoever has the instance id, on behalf of an administrator."""
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if member_id in group.pending:
        del group.pending[member_id]
        state.timers.cancel((SESSION, group.group_id, member_id))
        return LeftMember(member_id, instance_id)
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    try:
        member = group.check_member(member_id, instance_id)
    except ApiError as error:
        return LeftMember(leaving.member_id, instance_id, error.code)
    remove_member(state, group, member, outcome)
    return LeftMember(leaving.member_id, instance_id)


def _replay_group(state: GroupState, record: ClassicGroupRecord, _producer_id: int) -> None:
    """While loading the record is the group. After that the group is there as it was when the record was decided, and
    learns that its generation is recorded; unless it was of another kind until now."""
    group = state.groups.get(record.group_id)
    if record.gone:
        if isinstance(group, ClassicGroup):
            cancel_timers(state, group)
            del state.groups[record.group_id]
    elif not state.is_loaded or not isinstance(group, ClassicGroup):
        group = state.groups[record.group_id] = ClassicGroup.from_record(record)
        if state.is_loaded:
            _expect_everybody(state, group, record.current_state_timestamp)
    elif record.members:
        group.settle(record)


def _expect_everybody(state: GroupState, group: ClassicGroup, now_ms: int) -> None:
    for member in group.members.values():
        expect_heartbeat(state, group, member, now_ms)


def loaded(state: GroupState, now_ms: int) -> GroupOutcome:
    """Everybody has a whole session timeout to be heard of. A group that is too large now has to rebalance."""
    outcome: GroupOutcome = Outcome()
    size_max = state.config().group_max_size
    for group in state.groups.values():
        if isinstance(group, ClassicGroup):
            _expect_everybody(state, group, now_ms)
            if len(group.members) > size_max and group.state is STABLE:
                prepare_rebalance(state, group, outcome, now_ms)
    return outcome


DECISIONS: Final[Mapping[type[Command[Any]], Callable[[GroupState, Any, Ticket, int], GroupOutcome]]] = {
    JoinGroup: _join_group,
    SyncGroup: _sync_group,
    Heartbeat: _heartbeat,
    LeaveGroup: _leave_group,
}
CHECKS: Final[Checks] = {
    JoinGroup: classic_join.check_timeout,
    SyncGroup: check_named,
    Heartbeat: check_named,
    LeaveGroup: check_named,
}
REPLAYS: Final[Mapping[type[Any], Callable[[GroupState, Any, int], None]]] = {ClassicGroupRecord: _replay_group}
DUE: Final[Mapping[str, Callable[[GroupState, TimerKey, int], GroupOutcome]]] = {
    SESSION: session_due,
    JOIN: join_due,
    SYNC: sync_due,
    REBALANCE: rebalance_due,
}
