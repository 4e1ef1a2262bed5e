"""What a consumer group works towards: its epoch, its topics, and who shall have which partitions.

Theory of operation. Whatever changes who is in a group, what its members are subscribed to, or what is known about the
topics bumps the group's epoch. A new target is made for the newest epoch, but not more often than the group's settings
say: until then members work towards the previous one, and a timer makes the target even if nobody is heard of. Members
that join or leave in a burst so cause one rebalance and not one each.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final
from uuid import UUID

from ottla.core.controller.image import MetadataImage
from ottla.core.groups.assignor import AssignedMember, Assignor
from ottla.core.groups.assignor_range import assign_ranges
from ottla.core.groups.assignor_uniform import assign_uniformly
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.consumer_member import ConsumerMember
from ottla.core.groups.draft import Draft
from ottla.core.groups.partition_map import map_of, sorted_partitions
from ottla.core.groups.records import (
    ConsumerGroupRecord,
    RegularExpressionRecord,
    TargetAssignmentRecord,
    TargetMemberRecord,
)

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
ASSIGNMENT_TIMER: Final = "consumer_assignment"
RETRY_MS: Final = 1_000
"""When something that a timer wrote is tried again, should its records not have made it into the log."""


def metadata_hash(topics: Iterable[str], image: MetadataImage) -> int:
    """Tells topics as they are now from topics as they were: 64 bits, 0 where none of them exists."""
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(topics):
        topic = image.topics.get(name)
        if topic is not None:
            found = True
            digest.update(b"%b%d %d " % (topic.id.bytes, len(topic.partitions), len(name)))
            digest.update(name.encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def refresh_epoch(draft: Draft, *, bump: bool) -> None:
    """A new epoch if there is reason for one: `bump`, or topics that are not what they were."""
    group = draft.group
    found = metadata_hash(group.topics(), draft.state.image())
    if bump or found != group.metadata_hash:
        draft.write(ConsumerGroupRecord(group_id=group.group_id, epoch=group.epoch + 1, metadata_hash=found))
    elif draft.origin is not None:
        draft.origin.stale = False


def refresh_patterns(draft: Draft) -> bool:
    """Match the group's patterns with the topics there are, and forget patterns that nobody has; whether any pattern
    has other topics now."""
    group, topics = draft.group, draft.state.image().topics
    changed = False
    for pattern in [pattern for pattern in group.resolved if pattern not in group.patterns]:
        draft.write(RegularExpressionRecord(group_id=group.group_id, regular_expression=pattern, gone=True))
    for pattern in list(draft.group.patterns):
        found = draft.state.patterns.topics(pattern, topics)
        if draft.group.resolved.get(pattern) != found:
            changed = True
            draft.write(
                RegularExpressionRecord(
                    group_id=group.group_id,
                    regular_expression=pattern,
                    topics=tuple(sorted(found)),
                    version=max(0, draft.state.image().offset),
                    timestamp=draft.now_ms,
                )
            )
    return changed


def refresh_target(draft: Draft) -> None:
    """A target for the newest epoch: now if it may be made already, else by a timer."""
    group = draft.group
    if group.epoch <= group.assignment_epoch or not group.members:
        return
    pause_ms = draft.settings().assignment_pause_ms(len(group.members))
    due_ms = group.assignment_timestamp + pause_ms
    # A clock that was set back must not stop a group.
    if len(group.members) > 1 and draft.now_ms < due_ms <= draft.now_ms + pause_ms:
        draft.state.timers.set((ASSIGNMENT_TIMER, group.group_id), due_ms)
        return
    draft.state.timers.cancel((ASSIGNMENT_TIMER, group.group_id))
    _write_target(draft)


def _write_target(draft: Draft) -> None:
    group = draft.group
    image = draft.state.image()
    name = group.preferred_assignor(offered_assignors(draft))
    members = {member_id: _assigned_member(group, member, image) for member_id, member in group.members.items()}
    topics = frozenset[UUID]().union(*(member.topics for member in members.values()))
    counts = {topic_id: len(image.topics_by_id[topic_id].partitions) for topic_id in topics}
    shares = ASSIGNORS[name](members, counts)
    for member_id in members:
        share = map_of(shares.get(member_id, {}).items())
        if group.target.get(member_id) != share:
            draft.write(
                TargetMemberRecord(group_id=group.group_id, member_id=member_id, partitions=sorted_partitions(share))
            )
    draft.write(
        TargetAssignmentRecord(group_id=group.group_id, assignment_epoch=group.epoch, assignment_timestamp=draft.now_ms)
    )


def _assigned_member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> AssignedMember:
    order = member.instance_id if member.instance_id is not None else member.member_id
    return AssignedMember(order, topic_ids(group, member, image), group.target_of(member.member_id))


def topic_ids(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> frozenset[UUID]:
    """The topics that exist among those that a member is subscribed to."""
    found = (image.topics.get(name) for name in group.topics_of(member))
    return frozenset(topic.id for topic in found if topic is not None)


def offered_assignors(draft: Draft) -> tuple[str, ...]:
    """The assignors that members may choose, the default one first."""
    return offered(draft.state.config().group_consumer_assignors)


def offered(configured: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the configured assignors that this broker has; all that it has where it knows none of them."""
    return tuple(name for name in configured if name in ASSIGNORS) or tuple(ASSIGNORS)
