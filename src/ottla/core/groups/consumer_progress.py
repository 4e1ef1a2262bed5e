"""What a member of a consumer group says about itself, recorded, and its next step towards the target, recorded.

Shared by members of both protocols: a heartbeat of the consumer protocol and a JoinGroup of the classic one do this.
"""

from __future__ import annotations

from ottla.core.groups.consumer_member import ConsumerMember
from ottla.core.groups.draft import Draft
from ottla.core.groups.partition_map import PartitionMap
from ottla.core.groups.reconciliation import reconcile
from ottla.core.groups.target import refresh_epoch, refresh_patterns, refresh_target, topic_ids


def advance(draft: Draft, before: ConsumerMember, member: ConsumerMember, owned: PartitionMap | None) -> ConsumerMember:
    """`member` is `before` as it describes itself now, and owns this (None: it did not say). The member after all that
    follows from it: an epoch, a target, a step towards the target."""
    subscribed_anew = _describe(draft, before, member)
    refresh_target(draft)
    return _step(draft, member, owned, subscribed_anew)


def _describe(draft: Draft, before: ConsumerMember, member: ConsumerMember) -> bool:
    """Record what the member says about itself; whether it is subscribed to something else than before."""
    is_new = member.member_id not in draft.group.members
    if is_new or member != before:
        draft.write(member.description(draft.group.group_id))
    subscribed_anew = (
        member.subscribed_topic_names != before.subscribed_topic_names
        or member.subscribed_topic_regex != before.subscribed_topic_regex
    )
    bump = is_new or subscribed_anew or member.server_assignor != before.server_assignor
    if bump or draft.origin is None or draft.origin.stale:
        changed = refresh_patterns(draft)
        refresh_epoch(draft, bump=bump or changed)
    return subscribed_anew


def _step(draft: Draft, member: ConsumerMember, owned: PartitionMap | None, subscribed_anew: bool) -> ConsumerMember:
    group = draft.group
    # A target that is older than the subscription may hold topics that are not subscribed to any more.
    outdated = subscribed_anew and group.assignment_epoch < group.epoch
    after = reconcile(
        member,
        group.assignment_epoch,
        group.target_of(member.member_id),
        owned,
        lambda topic_id, number: group.owner_of(topic_id, number) in (None, member.member_id),
        topic_ids(group, member, draft.state.image()) if outdated else None,
    )
    if after != member:
        draft.write(after.possession(group.group_id))
    return after
