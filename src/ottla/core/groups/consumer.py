"""Consumer groups (KIP-848): heartbeats, descriptions, timers and replay.

Theory of operation. A heartbeat says who a member is, what it is subscribed to and what it owns, as far as that is new.
It may do three things, in this order: bump the group's epoch (the member is new or subscribed to something else), make
a new target (see `target`), and bring this one member a step nearer to the target (see `reconciliation`). Nobody waits:
what others have to do they hear with their own next heartbeats, and how soon those come is named in each answer (see
`group_settings`).

What an editor must keep true:
- A heartbeat of a member that has nothing to say and nothing to do writes nothing and costs the same in every group:
  `_is_quiet` is the only thing that is asked.
- Topics that change do so in `metadata_changed`, which only marks groups and lets a timer do the work, group by group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.core.controller.image import ImageDelta
from ottla.core.coordination import Checks, Command, Outcome, Ticket
from ottla.core.groups import consumer_replay
from ottla.core.groups.consumer_commands import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    MemberHeard,
)
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.consumer_joining import check_heartbeat, check_room, described, sender
from ottla.core.groups.consumer_leaving import (
    MEMBER_TIMERS,
    REVOCATION_TIMER,
    SESSION_TIMER,
    leave,
    member_is_late,
    session_ms,
)
from ottla.core.groups.consumer_member import STABLE, UNREVOKED_PARTITIONS, ConsumerMember
from ottla.core.groups.consumer_progress import advance
from ottla.core.groups.conversion import answer_waiting_classic, downgrade_if_possible, upgraded
from ottla.core.groups.draft import Draft, current_settings
from ottla.core.groups.group_settings import QUIET_AFTER_MS
from ottla.core.groups.partition_map import map_of, sorted_partitions
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.table import GroupState, TimerKey
from ottla.core.groups.target import (
    ASSIGNMENT_TIMER,
    RETRY_MS,
    offered,
    refresh_epoch,
    refresh_patterns,
    refresh_target,
)
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import uuid_to_base64

REFRESH_TIMER: Final = "consumer_refresh"
"""Topics that a group may be subscribed to have changed."""


def heartbeat(state: GroupState, command: ConsumerGroupHeartbeat, ticket: Ticket, now_ms: int) -> Outcome[GroupRecord]:
    group = state.groups.get(command.group_id)
    if type(group) is ConsumerGroup:
        member = group.members.get(command.member_id)
        if member is not None and _is_quiet(group, member, command):
            group.heard_ms[member.member_id] = now_ms
            interval_ms = _interval_ms(state, group, True, now_ms)
            return Outcome(None, [(ticket, MemberHeard(member.member_id, member.member_epoch, interval_ms))])
    check_heartbeat(command, state.config())
    draft = _draft(state, command, now_ms)
    if command.member_epoch < JOIN_EPOCH:
        return _leave(draft, command, ticket)
    return draft.answer(ticket, _hear(draft, command))


def _is_quiet(group: ConsumerGroup, member: ConsumerMember, command: ConsumerGroupHeartbeat) -> bool:
    """Whether a heartbeat says nothing new, and there is nothing that its member has to be told."""
    return (
        command.member_epoch == member.member_epoch == group.assignment_epoch == group.epoch > 0
        and member.state == STABLE
        and command.topic_partitions is None
        and command.subscribed_topic_names is None
        and command.subscribed_topic_regex is None
        and command.rebalance_timeout_ms < 0
        and command.server_assignor is None
        and command.rack_id is None
        and command.instance_id == member.instance_id
        and command.client_id == member.client_id
        and command.client_host == member.client_host
        and member.classic is None
        and not group.stale
    )


def _interval_ms(state: GroupState, group: ConsumerGroup, settled: bool, now_ms: int) -> int:
    """When a member shall send its next heartbeat."""
    if group.epoch != group.epoch_seen:
        group.epoch_seen = group.epoch
        group.moved_ms = now_ms
    settings = current_settings(state, group)
    if settled and now_ms - group.moved_ms >= QUIET_AFTER_MS:
        return settings.settled_interval_ms(state.consumer_members)
    return settings.moving_interval_ms(state.consumer_members)


def _draft(state: GroupState, command: ConsumerGroupHeartbeat, now_ms: int) -> Draft:
    """The group that a heartbeat is for: there, or new because somebody joins, or a classic group until now."""
    group = state.groups.get(command.group_id)
    if isinstance(group, ConsumerGroup):
        return Draft(state, group, now_ms)
    if command.member_epoch == JOIN_EPOCH:
        if group is None:
            return Draft(state, command.group_id, now_ms)
        return upgraded(state, group, now_ms)
    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {command.group_id} not found.")


def _leave(draft: Draft, command: ConsumerGroupHeartbeat, ticket: Ticket) -> Outcome[GroupRecord]:
    heard = leave(draft, command)
    downgrade_if_possible(draft)
    return draft.answer(ticket, heard)


def _hear(draft: Draft, command: ConsumerGroupHeartbeat) -> MemberHeard:
    """Everything that a heartbeat can do but leave."""
    state, now_ms = draft.state, draft.now_ms
    member_id = command.member_id or uuid_to_base64(state.new_uuid())
    if command.instance_id is None or command.instance_id not in draft.group.static_members:
        check_room(draft.group, member_id, state.config().group_consumer_max_size)
    before = sender(draft, command, member_id)
    owned = None if command.topic_partitions is None else map_of(command.topic_partitions)
    after = advance(draft, before, described(before, command), owned)
    answer_waiting_classic(draft)
    group = draft.group
    if draft.origin is not None:
        draft.origin.heard_ms[member_id] = now_ms
    state.timers.set((SESSION_TIMER, group.group_id, member_id), now_ms + draft.settings().session_timeout_ms)
    _watch_revocation(draft, before, after)
    is_full = command.member_epoch == JOIN_EPOCH or (
        command.rebalance_timeout_ms >= 0
        and command.topic_partitions is not None
        and (command.subscribed_topic_names is not None or command.subscribed_topic_regex is not None)
    )
    told = is_full or after.assigned != before.assigned or command.member_epoch != before.member_epoch
    settled = group.is_settled(after) and group.epoch == group.assignment_epoch
    soft = group if draft.origin is None else draft.origin
    interval_ms = _interval_ms(state, soft, settled and not draft.outcome.records, now_ms)
    if draft.outcome.records:
        interval_ms = min(interval_ms, draft.settings().moving_interval_ms(state.consumer_members))
    assignment = sorted_partitions(after.assigned) if told else None
    return MemberHeard(member_id, after.member_epoch, interval_ms, assignment)


def _watch_revocation(draft: Draft, before: ConsumerMember, member: ConsumerMember) -> None:
    """A member that has to give partitions back has its rebalance timeout for it, and again for others after them."""
    key = (REVOCATION_TIMER, draft.group.group_id, member.member_id)
    timers = draft.state.timers
    if member.state != UNREVOKED_PARTITIONS:
        timers.cancel(key)
    elif key not in timers or member.pending_revocation != before.pending_revocation:
        timers.set(key, draft.now_ms + member.rebalance_timeout_ms)


def describe(state: GroupState, command: DescribeConsumerGroup, ticket: Ticket, _now_ms: int) -> Outcome[GroupRecord]:
    group = state.groups.get(command.group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} {what}.")
    members = tuple(_described_member(group, member) for member in group.members.values())
    assignor = group.preferred_assignor(offered(state.config().group_consumer_assignors))
    answer = DescribedConsumerGroup(
        group.group_id, group.state_name, group.epoch, group.assignment_epoch, assignor, members
    )
    return Outcome(answers=[(ticket, answer)])


def _described_member(group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumerMember:
    return DescribedConsumerMember(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
        sorted_partitions(member.assigned),
        sorted_partitions(group.target_of(member.member_id)),
        member.classic is not None,
    )


def _refresh_is_due(state: GroupState, key: TimerKey, now_ms: int) -> Outcome[GroupRecord]:
    """Topics or patterns of a group may have changed, or a target may be made."""
    group = state.groups.get(key[1])
    if not isinstance(group, ConsumerGroup) or not group.members:
        return Outcome()
    draft = Draft(state, group, now_ms)
    if key[0] == REFRESH_TIMER:
        changed = refresh_patterns(draft)
        refresh_epoch(draft, bump=changed)
    refresh_target(draft)
    if draft.outcome.records and key not in state.timers:
        state.timers.set(key, now_ms + RETRY_MS)
    return draft.outcome


def _member_is_late(state: GroupState, key: TimerKey, now_ms: int) -> Outcome[GroupRecord]:
    draft = member_is_late(state, key, now_ms)
    if draft is None:
        return Outcome()
    downgrade_if_possible(draft)
    return draft.outcome


def metadata_changed(state: GroupState, delta: ImageDelta) -> Outcome[GroupRecord]:
    """Mark the groups that changed topics or configs concern, and let timers, due at once, do the rest."""
    for resource, name in delta.configs_changed:
        if resource is ResourceType.GROUP and isinstance(group := state.groups.get(name), ConsumerGroup):
            group.settings = None
    topics_by_id = state.image().topics_by_id
    appeared = {topic.name for topic in delta.topics_created}
    vanished = {topic.name for topic in delta.topics_deleted}
    grown = {topics_by_id[topic_id].name for topic_id in delta.partitions_changed if topic_id in topics_by_id}
    touched = appeared | vanished | grown
    if touched:
        for group in state.groups.values():
            if type(group) is ConsumerGroup and _concerns(group, touched, appeared or vanished):
                group.stale = True
                state.timers.set((REFRESH_TIMER, group.group_id), 0)
    return Outcome()


def _concerns(group: ConsumerGroup, topics: set[str], came_or_went: set[str]) -> bool:
    return bool(came_or_went and group.patterns) or any(map(group.is_subscribed_to, topics))


def loaded(state: GroupState, now_ms: int) -> Outcome[GroupRecord]:
    """Members have their whole session again, and what changed while nobody looked is looked at."""
    for group in state.groups.values():
        if type(group) is not ConsumerGroup or not group.members:
            continue
        for member in group.members.values():
            key = (SESSION_TIMER, group.group_id, member.member_id)
            state.timers.set(key, now_ms + session_ms(state, group, member))
            if member.state == UNREVOKED_PARTITIONS and member.classic is None:
                key = (REVOCATION_TIMER, group.group_id, member.member_id)
                state.timers.set(key, now_ms + member.rebalance_timeout_ms)
        group.stale = True
        group.epoch_seen = group.epoch
        state.timers.set((REFRESH_TIMER, group.group_id), now_ms)
    return Outcome()


DECISIONS: Final[Mapping[type[Command[Any]], Callable[[GroupState, Any, Ticket, int], Outcome[GroupRecord]]]] = {
    ConsumerGroupHeartbeat: heartbeat,
    DescribeConsumerGroup: describe,
}
CHECKS: Final[Checks] = {ConsumerGroupHeartbeat: check_heartbeat}
REPLAYS: Final[Mapping[type[Any], Callable[[GroupState, Any, int], None]]] = consumer_replay.REPLAYS
DUE: Final[Mapping[str, Callable[[GroupState, TimerKey, int], Outcome[GroupRecord]]]] = {
    **dict.fromkeys(MEMBER_TIMERS, _member_is_late),
    ASSIGNMENT_TIMER: _refresh_is_due,
    REFRESH_TIMER: _refresh_is_due,
}
