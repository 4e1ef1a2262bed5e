"""Members of the classic protocol inside a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Theory of operation. A generation is the member's epoch. Joining is for a classic member what a heartbeat is for the
others: it says what it is subscribed to and what it owns, and gets a step nearer to the target; SyncGroup hands out
what it may own now. The answer to Heartbeat tells it to join again when there is another step: a newer target,
partitions that it has to give back, partitions that have become free. Nobody leads; the broker assigns. A member that
does not follow within its rebalance timeout is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.core.coordination import Command, Outcome, Ticket
from ottla.core.groups.classic_commands import (
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    SyncedGroup,
    SyncGroup,
)
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.consumer_joining import check_instance, check_room, take_over
from ottla.core.groups.consumer_leaving import JOIN_TIMER, REVOCATION_TIMER, SESSION_TIMER, SYNC_TIMER, remove
from ottla.core.groups.consumer_member import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS, ConsumerMember
from ottla.core.groups.consumer_progress import advance
from ottla.core.groups.conversion import assignment_bytes, downgrade_if_possible, partitions_by_id
from ottla.core.groups.draft import Draft
from ottla.core.groups.embedded_protocol import Subscription, parse_subscription
from ottla.core.groups.partition_map import NONE_OF_TOPIC
from ottla.core.groups.records import ClassicMemberMetadata, GroupRecord
from ottla.core.groups.subscription import PROTOCOL_TYPE
from ottla.core.groups.table import GroupState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import uuid_to_base64


def _group(state: GroupState, group_id: str) -> ConsumerGroup:
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} is no consumer group: join again")
    return group


def join_group(state: GroupState, command: JoinGroup, ticket: Ticket, now_ms: int) -> Outcome[GroupRecord]:
    group = _group(state, command.group_id)
    member_id = command.member_id or uuid_to_base64(state.new_uuid())
    instance_id = command.group_instance_id
    if instance_id is None or instance_id not in group.static_members:
        check_room(group, member_id, state.config().group_consumer_max_size)
    subscription = _check_protocols(group, command)
    if not command.member_id and instance_id is None and command.member_id_required:
        return Outcome(answers=[(ticket, JoinedGroup(ErrorCode.MEMBER_ID_REQUIRED, member_id))])
    draft = Draft(state, group, now_ms)
    before = _joining(draft, command, member_id)
    member = replace(
        before,
        instance_id=before.instance_id if instance_id is None else instance_id,
        rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=max(command.rebalance_timeout_ms, 0),
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex=None,
        client_id=command.client_id,
        client_host=command.client_host,
        classic=ClassicMemberMetadata(command.session_timeout_ms, command.protocols),
    )
    after = advance(draft, before, member, partitions_by_id(subscription.owned, state.image()))
    if before.classic is None and downgrade_if_possible(draft):
        # It took the place of the last member of the new protocol: the group that it has to join is a classic one now.
        return draft.answer(ticket, JoinedGroup(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
    state.timers.cancel((JOIN_TIMER, group.group_id, member_id))
    state.timers.cancel((REVOCATION_TIMER, group.group_id, member_id))
    state.timers.set((SYNC_TIMER, group.group_id, member_id), now_ms + member.rebalance_timeout_ms)
    _expect(state, group, member, now_ms)
    name = command.protocols[0].name
    return draft.answer(ticket, JoinedGroup(ErrorCode.NONE, member_id, after.member_epoch, PROTOCOL_TYPE, name))


def _check_protocols(group: ConsumerGroup, command: JoinGroup) -> Subscription:
    """What a joining member is subscribed to; INCONSISTENT_GROUP_PROTOCOL where it does not fit to the other classic
    members, among whom there must be a protocol that all have, or cannot be read."""
    everybody = group.classic_member_count
    fits = command.protocol_type == PROTOCOL_TYPE and any(
        group.classic_protocols.get(protocol.name, 0) == everybody for protocol in command.protocols
    )
    subscription = parse_subscription(command.protocols[0].metadata) if fits else None
    if subscription is None:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The protocols of member {command.member_id} are not supported."
        )
    return subscription


def _joining(draft: Draft, command: JoinGroup, member_id: str) -> ConsumerMember:
    """Who joins: somebody known, a static member that is back under another id, or somebody new."""
    group, instance_id = draft.group, command.group_instance_id
    if instance_id is not None:
        known = group.static_member(instance_id)
        if command.member_id:
            return check_instance(known, member_id, instance_id)
        if known is not None:
            return take_over(draft, known, member_id)
    return group.members.get(member_id) or ConsumerMember(member_id=member_id)


def sync_group(state: GroupState, command: SyncGroup, ticket: Ticket, now_ms: int) -> Outcome[GroupRecord]:
    group = _group(state, command.group_id)
    member, classic = _classic_member(group, command.member_id, command.group_instance_id, command.generation_id)
    protocol = classic.supported_protocols[0]
    for asked, current in ((command.protocol_type, PROTOCOL_TYPE), (command.protocol_name, protocol.name)):
        if asked is not None and asked != current:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"member {member.member_id} joined with {current}")
    if member.member_epoch < group.assignment_epoch and member.state != UNREVOKED_PARTITIONS:
        _expect_join(state, group, member, now_ms)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "there is a newer assignment: join again")
    state.timers.cancel((SYNC_TIMER, group.group_id, member.member_id))
    _expect(state, group, member, now_ms)
    assignment = assignment_bytes(protocol.metadata, member.assigned, state.image())
    answer = SyncedGroup(ErrorCode.NONE, command.protocol_type, command.protocol_name, assignment)
    return Outcome(answers=[(ticket, answer)])


def heartbeat(state: GroupState, command: Heartbeat, ticket: Ticket, now_ms: int) -> Outcome[GroupRecord]:
    group = _group(state, command.group_id)
    member, _ = _classic_member(group, command.member_id, command.group_instance_id, command.generation_id)
    group.heard_ms[member.member_id] = now_ms
    code = ErrorCode.NONE
    if _has_another_step(group, member):
        _expect_join(state, group, member, now_ms)
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return Outcome(answers=[(ticket, code)])


def _has_another_step(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether joining again would bring the member nearer to the target."""
    if member.member_epoch < group.assignment_epoch or member.state == UNREVOKED_PARTITIONS:
        return True
    return member.state == UNRELEASED_PARTITIONS and not any(
        group.owner_of(topic_id, number) not in (None, member.member_id)
        for topic_id, numbers in group.target_of(member.member_id).items()
        for number in numbers - member.assigned.get(topic_id, NONE_OF_TOPIC)
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    """The member in this generation, which speaks the classic protocol."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_instance(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise _not_classic(member)
    if generation != member.member_epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"Generation {generation} is not the epoch {member.member_epoch} of member {member_id}.",
        )
    return member, member.classic


def _not_classic(member: ConsumerMember) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")


def _expect(state: GroupState, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    """The member has been heard of, and has its session timeout again."""
    group.heard_ms[member.member_id] = now_ms
    session_timeout_ms = 0 if member.classic is None else member.classic.session_timeout_ms
    state.timers.set((SESSION_TIMER, group.group_id, member.member_id), now_ms + session_timeout_ms)


def _expect_join(state: GroupState, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    """The member has been told to join again, and has its rebalance timeout for it."""
    key = (JOIN_TIMER, group.group_id, member.member_id)
    if key not in state.timers:
        state.timers.set(key, now_ms + member.rebalance_timeout_ms)


def leave_group(state: GroupState, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Outcome[GroupRecord]:
    group = _group(state, command.group_id)
    leaving: dict[str, ConsumerMember] = {}
    answers = []
    for asked in command.members:
        try:
            member = _leaving(group, asked)
            if member.member_id in leaving:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} has left already.")
        except ApiError as error:
            answers.append(LeftMember(asked.member_id, asked.group_instance_id, error.code))
            continue
        leaving[member.member_id] = member
        answers.append(LeftMember(member.member_id, asked.group_instance_id))
    draft = Draft(state, group, now_ms)
    if leaving:
        remove(draft, list(leaving.values()))
        downgrade_if_possible(draft)
    return draft.answer(ticket, tuple(answers))


def _leaving(group: ConsumerGroup, asked: LeavingMember) -> ConsumerMember:
    """Who leaves: without a member id it is whoever has the instance id, on behalf of an administrator."""
    if asked.group_instance_id is None:
        member = group.member(asked.member_id)
    else:
        known = group.static_member(asked.group_instance_id)
        member_id = asked.member_id or ("" if known is None else known.member_id)
        member = check_instance(known, member_id, asked.group_instance_id)
    if member.classic is None:
        raise _not_classic(member)
    return member


CLASSIC_DECISIONS: Final[
    Mapping[type[Command[Any]], Callable[[GroupState, Any, Ticket, int], Outcome[GroupRecord]]]
] = {
    JoinGroup: join_group,
    SyncGroup: sync_group,
    Heartbeat: heartbeat,
    LeaveGroup: leave_group,
}
"""What classic members ask of a consumer group, by the command."""
