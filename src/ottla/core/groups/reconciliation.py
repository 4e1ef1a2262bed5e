"""How a member gets from what it has to what it shall have, one safe step per heartbeat.

Theory of operation. A target says what each member of a group shall have. A member reaches it in an order that never
gives a partition two owners: first it gives back what it shall not have and says so (UNREVOKED_PARTITIONS, in its old
epoch), then it enters the target's epoch and takes what is free; what others have not given back yet it takes later
(UNRELEASED_PARTITIONS). Members do not wait for each other otherwise.

What an editor must keep true: a partition counts as owned by a member from the record that assigns it to the record
that shows that the member has said it gave it back, or that the member is gone. `is_free` tells of exactly that.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.core.groups.consumer_member import STABLE, UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS, ConsumerMember
from ottla.core.groups.partition_map import (
    NO_PARTITIONS,
    NONE_OF_TOPIC,
    PartitionMap,
    is_subset,
    only_topics,
    overlap,
    union,
)
from ottla.model.errors import ApiError, ErrorCode


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: PartitionMap,
    owned: PartitionMap | None,
    is_free: Callable[[UUID, int], bool],
    subscribed: frozenset[UUID] | None = None,
) -> ConsumerMember:
    """The member one step further; itself where there is no step.

    `owned` is what the member says it has, None where it said nothing. `is_free` tells whether nobody, or the member
    itself, owns a partition. `subscribed`, given when the member's subscription has changed: topics that the member
    must not have any more whatever the target says, which may be older than the change.
    """
    if member.state == STABLE:
        if member.member_epoch == target_epoch and subscribed is None:
            return member
    elif member.state == UNREVOKED_PARTITIONS:
        if owned is None or overlap(owned, member.pending_revocation):
            return member
    elif member.state != UNRELEASED_PARTITIONS and (owned is None or owned):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is in state {member.state}, which this version does not know: it must give up "
            "its partitions and rejoin.",
        )
    if subscribed is not None:
        target = only_topics(target, subscribed)
    return _next(member, target_epoch, target, owned, is_free)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: PartitionMap,
    owned: PartitionMap | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember:
    kept: dict[UUID, frozenset[int]] = {}
    surplus: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in member.assigned.items():
        wanted = target.get(topic_id, NONE_OF_TOPIC)
        if keep := numbers & wanted:
            kept[topic_id] = keep
        if give := numbers - wanted:
            surplus[topic_id] = give
    if surplus and (owned is None or overlap(owned, surplus)):
        return member.moved_to(member.member_epoch, UNREVOKED_PARTITIONS, kept, surplus)
    gained: dict[UUID, frozenset[int]] = {}
    waiting = False
    for topic_id, numbers in target.items():
        missing = numbers - kept.get(topic_id, NONE_OF_TOPIC)
        if free := frozenset(number for number in missing if is_free(topic_id, number)):
            gained[topic_id] = free
        waiting = waiting or len(free) < len(missing)
    state = UNRELEASED_PARTITIONS if waiting else STABLE
    return member.moved_to(target_epoch, state, union(kept, gained), NO_PARTITIONS)


def lost_something(before: ConsumerMember, after: ConsumerMember) -> bool:
    """Whether a partition that the member owned is its own no longer."""
    return not is_subset(
        union(before.assigned, before.pending_revocation), union(after.assigned, after.pending_revocation)
    )
