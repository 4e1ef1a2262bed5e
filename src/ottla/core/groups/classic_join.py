"""JoinGroup for classic groups: who may come in, who has to wait, and what is answered at once.

Somebody whom the group does not know is given a member id and comes back with it (a client that cannot do that is taken
in at once). Somebody with an instance id is a static member: it takes the place of the one that has the id, and in a
stable group nobody else notices, unless its protocols change the group's.

What an editor must keep true: `join` raises before it changes anything, and a group that is not there yet is put in the
table only together with the record that says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.core.coordination import Outcome, Ticket
from ottla.core.groups.classic_commands import JoinedGroup, JoinedMember, JoinGroup, check_named
from ottla.core.groups.classic_group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup, select_protocol
from ottla.core.groups.classic_member import ClassicMember
from ottla.core.groups.classic_rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    SESSION,
    GroupOutcome,
    answer_everybody,
    answer_join,
    answer_waiting,
    cancel_timers,
    complete_if_all_joined,
    expect,
    expect_heartbeat,
    joined,
    rebalance_or_complete,
    remove_member,
)
from ottla.core.groups.group import Group
from ottla.core.groups.record_limits import record_bytes_max
from ottla.core.groups.records import ClassicGroupRecord
from ottla.core.groups.table import GroupState
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode

PENDING_MEMBERS_MAX: Final = 10_000
"""Member ids of a group with which nobody has joined yet; past it the oldest is forgotten."""
OFFERED_RECORDS_MAX: Final = 4
"""What a member offers in all its protocols together, in records of the largest size."""
CLIENT_ID_CHARS_MAX: Final = 8000
"""How much of a client id goes into a member id, which must stay a string of the protocol."""


def check_timeout(command: JoinGroup, config: BrokerConfig) -> None:
    """What anybody can refuse."""
    check_named(command, config)
    least_ms, most_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not least_ms <= command.session_timeout_ms <= most_ms:
        raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT, f"the session timeout must be within {least_ms}-{most_ms} ms")


def check_join(state: GroupState, command: JoinGroup) -> None:
    """What can be refused without knowing the group."""
    check_timeout(command, state.config())
    largest = record_bytes_max(state)
    sizes = [len(protocol.metadata) for protocol in command.protocols]
    if max(sizes, default=0) > largest or sum(sizes) > OFFERED_RECORDS_MAX * largest:
        # Never to be recorded: the whole group would fail with it when its leader assigns.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata of a member must fit in {largest} bytes")


def join_new_group(
    state: GroupState, replaced: Group | None, command: JoinGroup, ticket: Ticket, now_ms: int
) -> GroupOutcome:
    """There is no such group, or an empty one of another kind (`replaced`), which this one takes the place of."""
    if command.member_id:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {command.group_id}: join without a member id")
    group = ClassicGroup(command.group_id, now_ms)
    record = group.to_record(now_ms, {})
    outcome = join(state, group, command, ticket, now_ms)
    state.groups[command.group_id] = group
    outcome.records[:0] = [*(replaced.tombstones() if replaced is not None else ()), record]

    def not_written(code: ErrorCode, _now_ms: int) -> GroupOutcome:
        instead: GroupOutcome = Outcome(answers=[(given, JoinedGroup(code)) for given, _answer in outcome.answers])
        answer_everybody(group, code, instead)
        cancel_timers(state, group)
        del state.groups[command.group_id]
        if replaced is not None:
            state.groups[command.group_id] = replaced
        return instead

    outcome.not_written = not_written
    return outcome


def join(state: GroupState, group: ClassicGroup, command: JoinGroup, ticket: Ticket, now_ms: int) -> GroupOutcome:
    """Somebody joins a group that is there, or about to be."""
    if not _has_room(state, group, command):
        return _turn_away(state, group, command.member_id, ticket, now_ms)
    if not group.supports(command.protocol_type, command.protocols):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's members have no protocol in common with it")
    if not command.member_id:
        return _join_unknown(state, group, command, ticket, now_ms)
    if command.member_id in group.pending:
        if command.group_instance_id is not None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the id was given to somebody without an instance id")
        return _add(state, group, command.member_id, command, ticket, now_ms)
    member = group.check_member(command.member_id, command.group_instance_id)
    return _rejoin(state, group, member, command, ticket, now_ms)


def _has_room(state: GroupState, group: ClassicGroup, command: JoinGroup) -> bool:
    """While members rejoin those who have are counted, so that a group that became too large loses the last ones. Who
    comes back under an instance id of the group makes it no larger."""
    size_max = state.config().group_max_size
    if group.state is EMPTY:
        return True
    member_id = command.member_id or group.static_members.get(command.group_instance_id or "", "")
    member = group.members.get(member_id)
    if group.state is PREPARING:
        return group.waiting_joins < size_max or (member is not None and member.join_ticket is not None)
    return len(group.members) < size_max or member is not None


def _turn_away(state: GroupState, group: ClassicGroup, member_id: str, ticket: Ticket, now_ms: int) -> GroupOutcome:
    outcome: GroupOutcome = Outcome(answers=[(ticket, JoinedGroup(ErrorCode.GROUP_MAX_SIZE_REACHED))])
    member = group.members.get(member_id)
    if member is not None:
        remove_member(state, group, member, outcome)
    elif member_id in group.pending:
        _forget_pending(state, group, member_id)
    if not group.initial:
        complete_if_all_joined(state, group, outcome, now_ms)
    return outcome


def _join_unknown(
    state: GroupState, group: ClassicGroup, command: JoinGroup, ticket: Ticket, now_ms: int
) -> GroupOutcome:
    instance_id = command.group_instance_id
    name = command.client_id if instance_id is None else instance_id
    member_id = f"{name[:CLIENT_ID_CHARS_MAX]}-{state.new_uuid()}"
    if instance_id is not None and instance_id in group.static_members:
        return _replace(state, group, member_id, command, ticket, now_ms)
    if instance_id is not None or not command.member_id_required:
        return _add(state, group, member_id, command, ticket, now_ms)
    if len(group.pending) >= PENDING_MEMBERS_MAX:
        _forget_pending(state, group, next(iter(group.pending)))
    group.pending[member_id] = None
    state.timers.set((SESSION, group.group_id, member_id), now_ms + command.session_timeout_ms)
    return Outcome(answers=[(ticket, JoinedGroup(ErrorCode.MEMBER_ID_REQUIRED, member_id))])


def _forget_pending(state: GroupState, group: ClassicGroup, member_id: str) -> None:
    del group.pending[member_id]
    state.timers.cancel((SESSION, group.group_id, member_id))


def _member(command: JoinGroup, member_id: str, ticket: Ticket | None) -> ClassicMember:
    member = ClassicMember(
        member_id,
        command.group_instance_id,
        command.client_id,
        command.client_host,
        max(command.rebalance_timeout_ms, 0),
        command.session_timeout_ms,
        command.protocols,
    )
    member.join_ticket = ticket
    return member


def _add(
    state: GroupState, group: ClassicGroup, member_id: str, command: JoinGroup, ticket: Ticket, now_ms: int
) -> GroupOutcome:
    """A new member. It waits, and with it everybody has to join again."""
    outcome: GroupOutcome = Outcome()
    member = _member(command, member_id, ticket)
    member.is_new = True
    if group.state is PREPARING and group.initial:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = command.protocol_type
    if member_id in group.pending:
        _forget_pending(state, group, member_id)
    group.add(member)
    expect(state, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS, now_ms)
    rebalance_or_complete(state, group, outcome, now_ms)
    return outcome


def _rejoin(
    state: GroupState, group: ClassicGroup, member: ClassicMember, command: JoinGroup, ticket: Ticket, now_ms: int
) -> GroupOutcome:
    """A member joins again. Where that changes nothing it is told where the group stands, and nobody has to move."""
    unchanged = member.protocols == command.protocols
    leads = group.leader == member.member_id
    if unchanged and (group.state is COMPLETING or (group.state is STABLE and not leads)):
        return Outcome(answers=[(ticket, joined(group, member))])
    outcome: GroupOutcome = Outcome()
    # Only one request of a member waits: the client that sent the other one has turned away from it.
    answer_join(group, member, JoinedGroup(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id), outcome)
    group.update(member, command.protocols)
    member.rebalance_timeout_ms = max(command.rebalance_timeout_ms, 0)
    member.session_timeout_ms = command.session_timeout_ms
    group.wait_for_join(member, ticket)
    rebalance_or_complete(state, group, outcome, now_ms)
    return outcome


def _replace(
    state: GroupState, group: ClassicGroup, member_id: str, command: JoinGroup, ticket: Ticket, now_ms: int
) -> GroupOutcome:
    """A static member came back under its instance id; the one that had it before is fenced off."""
    old = group.members[group.static_members[command.group_instance_id or ""]]
    if group.state is STABLE and group.protocol_name == _protocol_with(group, old, command):
        return _replace_unnoticed(state, group, old, _member(command, member_id, None), command, ticket, now_ms)
    outcome: GroupOutcome = Outcome()
    answer_waiting(group, old, ErrorCode.FENCED_INSTANCE_ID, outcome)
    member = _member(command, member_id, ticket)
    group.replace_static(member)
    state.timers.cancel((SESSION, group.group_id, old.member_id))
    expect_heartbeat(state, group, member, now_ms)
    rebalance_or_complete(state, group, outcome, now_ms)
    return outcome


def _protocol_with(group: ClassicGroup, old: ClassicMember, command: JoinGroup) -> str | None:
    """The protocol that the group would choose with the newcomer in the place of `old`."""
    return select_protocol(
        command.protocols if member is old else member.protocols for member in group.members.values()
    )


def _replace_unnoticed(
    state: GroupState,
    group: ClassicGroup,
    old: ClassicMember,
    new: ClassicMember,
    command: JoinGroup,
    ticket: Ticket,
    now_ms: int,
) -> GroupOutcome:
    """The group stays stable: that it is another member now is recorded, and takes effect when it is. A leader does not
    have to assign anything; a client that cannot be told so is told that somebody else leads."""
    record = _record_with(group, old, new, now_ms)
    leads = record.leader == new.member_id and command.skip_assignment_supported
    answer = JoinedGroup(
        ErrorCode.NONE,
        new.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        (record.leader if command.skip_assignment_supported else group.leader) or "",
        leads,
        tuple(JoinedMember(m.member_id, m.group_instance_id, m.subscription) for m in record.members) if leads else (),
    )
    group.replacement = new
    expect_heartbeat(state, group, new, now_ms)

    def not_written(code: ErrorCode, _now_ms: int) -> GroupOutcome:
        group.replacement = None
        state.timers.cancel((SESSION, group.group_id, new.member_id))
        return Outcome(answers=[(ticket, JoinedGroup(code))])

    return Outcome([record], [(ticket, answer)], not_written=not_written)


def _record_with(group: ClassicGroup, old: ClassicMember, new: ClassicMember, now_ms: int) -> ClassicGroupRecord:
    """What is recorded of the group when `new` has the place of `old`."""
    record = group.to_record(now_ms, {member.member_id: member.assignment for member in group.members.values()})
    others = [member for member in record.members if member.member_id != old.member_id]
    taken = new.to_record(group.protocol_name or "", old.assignment)
    leader = new.member_id if group.leader == old.member_id else group.leader
    return replace(record, leader=leader, members=(*others, taken))
