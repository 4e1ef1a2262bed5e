"""SyncGroup for classic groups: the leader's assignment makes a generation stable, everybody else waits for it."""

from __future__ import annotations

from ottla.core.coordination import Outcome, Ticket
from ottla.core.groups.classic_commands import SyncedGroup, SyncGroup
from ottla.core.groups.classic_group import COMPLETING, PREPARING, ClassicGroup
from ottla.core.groups.classic_rebalance import (
    SYNC,
    GroupOutcome,
    answer_sync,
    expect_heartbeat,
    prepare_rebalance,
)
from ottla.core.groups.record_limits import record_bytes_max
from ottla.core.groups.table import GroupState
from ottla.model.errors import ApiError, ErrorCode


def sync(state: GroupState, group: ClassicGroup, command: SyncGroup, ticket: Ticket, now_ms: int) -> GroupOutcome:
    """The assignment where there is one, or a place among those who wait for it."""
    member = group.check_member(command.member_id, command.group_instance_id)
    group.check_generation(command.generation_id)
    _check_protocol(group, command)
    if group.state is PREPARING:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
    outcome: GroupOutcome = Outcome()
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        state.timers.cancel((SYNC, group.group_id))
    if group.state is not COMPLETING:
        outcome.answer(ticket, _synced(group, member.assignment))
        return outcome
    # Only one request of a member waits: the client that sent the other one has turned away from it.
    answer_sync(member, SyncedGroup(ErrorCode.REBALANCE_IN_PROGRESS), outcome)
    member.sync_ticket = ticket
    if group.leader == member.member_id:
        return _assign(state, group, dict(command.assignments), outcome, now_ms)
    return outcome


def _check_protocol(group: ClassicGroup, command: SyncGroup) -> None:
    for asked, current in (
        (command.protocol_type, group.protocol_type),
        (command.protocol_name, group.protocol_name),
    ):
        if asked is not None and current is not None and asked != current:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group uses {current}")


def _synced(group: ClassicGroup, assignment: bytes) -> SyncedGroup:
    return SyncedGroup(ErrorCode.NONE, group.protocol_type, group.protocol_name, assignment)


def _assign(
    state: GroupState, group: ClassicGroup, assignments: dict[str, bytes], outcome: GroupOutcome, now_ms: int
) -> GroupOutcome:
    """Record the generation. Those who wait are answered with it, or told why it could not be recorded."""
    generation, answered = group.generation, list(outcome.answers)
    tickets = []
    for member in group.members.values():
        if member.sync_ticket is not None:
            tickets.append(member.sync_ticket)
            answer_sync(member, _synced(group, assignments.get(member.member_id, b"")), outcome)
            expect_heartbeat(state, group, member, now_ms)

    def not_written(code: ErrorCode, at_ms: int) -> GroupOutcome:
        failure = SyncedGroup(code)
        instead: GroupOutcome = Outcome(answers=answered + [(ticket, failure) for ticket in tickets])
        if group.state is COMPLETING and group.generation == generation:
            prepare_rebalance(state, group, instead, at_ms)
        return instead

    if _recorded_bytes(group, assignments) > record_bytes_max(state):
        return not_written(ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)
    outcome.records.append(group.to_record(now_ms, assignments))
    outcome.not_written = not_written
    return outcome


def _recorded_bytes(group: ClassicGroup, assignments: dict[str, bytes]) -> int:
    """The parts of the record that may be large."""
    return sum(
        len(assignments.get(member.member_id, b"")) + len(member.metadata(group.protocol_name) or b"")
        for member in group.members.values()
    )
