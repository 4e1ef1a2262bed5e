"""Members that go: by their own wish, because nothing is heard of them, or because they keep others waiting."""

from __future__ import annotations

from typing import Final

from ottla.core.groups.consumer_commands import STATIC_LEAVE_EPOCH, ConsumerGroupHeartbeat, MemberHeard
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.consumer_joining import check_instance, write_gone
from ottla.core.groups.consumer_member import UNREVOKED_PARTITIONS, ConsumerMember
from ottla.core.groups.draft import Draft, current_settings
from ottla.core.groups.partition_map import NO_PARTITIONS
from ottla.core.groups.table import GroupState, TimerKey
from ottla.core.groups.target import RETRY_MS, refresh_epoch, refresh_patterns, refresh_target

SESSION_TIMER: Final = "consumer_session"
REVOCATION_TIMER: Final = "consumer_revocation"
JOIN_TIMER: Final = "consumer_join"
"""A classic member has been told to join again."""
SYNC_TIMER: Final = "consumer_sync"
"""A classic member has joined and has to ask for its assignment."""
MEMBER_TIMERS: Final = (SESSION_TIMER, REVOCATION_TIMER, JOIN_TIMER, SYNC_TIMER)


def leave(draft: Draft, command: ConsumerGroupHeartbeat) -> MemberHeard:
    """A member says that it goes. A static one may say that it will be back: then it is waited for."""
    group = draft.group
    if command.instance_id is None:
        member = group.member(command.member_id)
    else:
        known = group.static_member(command.instance_id)
        member = check_instance(known, command.member_id, command.instance_id)
        if command.member_epoch == STATIC_LEAVE_EPOCH:
            away = member.moved_to(STATIC_LEAVE_EPOCH, member.state, member.assigned, NO_PARTITIONS)
            draft.write(away.possession(group.group_id))
            return MemberHeard(member.member_id, STATIC_LEAVE_EPOCH)
    remove(draft, [member])
    return MemberHeard(member.member_id, command.member_epoch)


def remove(draft: Draft, members: list[ConsumerMember]) -> None:
    """Members are gone, and what they had is free."""
    for member in members:
        write_gone(draft, member.member_id)
    refresh_patterns(draft)
    refresh_epoch(draft, bump=True)
    refresh_target(draft)


def session_ms(state: GroupState, group: ConsumerGroup, member: ConsumerMember) -> int:
    """How long a member may be silent."""
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return current_settings(state, group).session_timeout_ms


def forget_timers(state: GroupState, group_id: str, member_id: str) -> None:
    for name in MEMBER_TIMERS:
        state.timers.cancel((name, group_id, member_id))


def _is_waited_for(timer: str, member: ConsumerMember) -> bool:
    """Whether what the timer is about is still to be done. One that is away has given back all that it had to when it
    went; one that speaks the new protocol by now has nothing to join or to sync."""
    if timer == REVOCATION_TIMER:
        return member.state == UNREVOKED_PARTITIONS and member.member_epoch != STATIC_LEAVE_EPOCH
    return timer == SESSION_TIMER or member.classic is not None


def member_is_late(state: GroupState, key: TimerKey, now_ms: int) -> Draft | None:
    """A timer of a member has run out: a draft without the member, or None where the member is in time after all. The
    timer is set again for a moment later, in case that what is written here gets lost; the tombstone cancels it."""
    name, group_id, member_id = key
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return None
    member = group.members.get(member_id)
    if member is None or not _is_waited_for(name, member):
        return None
    if name == SESSION_TIMER and member_id in group.heard_ms:
        deadline_ms = group.heard_ms[member_id] + session_ms(state, group, member)
        if deadline_ms > now_ms:
            state.timers.set(key, deadline_ms)
            return None
    state.timers.set(key, now_ms + RETRY_MS)
    draft = Draft(state, group, now_ms)
    remove(draft, [member])
    return draft
