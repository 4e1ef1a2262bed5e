"""A live group changes its kind: a classic group becomes a consumer group, and back.

Theory of operation. A classic group whose members are consumers turns into a consumer group when somebody joins it with
the consumer protocol; its members stay (see `migration`). When the last member of the new protocol has gone, the group
becomes a classic one again, and rebalances. `group.consumer.migration.policy` says which of the two may happen. An
empty group is simply replaced.

What an editor must keep true:
- A conversion is one list of records: tombstones of the old kind, then the group as the new kind.
- What waits in a classic group is answered by `answer_waiting_classic` once nothing can fail any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.core.controller.image import MetadataImage
from ottla.core.groups.classic_group import ClassicGroup, select_protocol
from ottla.core.groups.classic_member import ClassicMember
from ottla.core.groups.classic_rebalance import answer_everybody, rebalance_soon
from ottla.core.groups.consumer_leaving import SESSION_TIMER
from ottla.core.groups.consumer_member import ConsumerMember
from ottla.core.groups.draft import Draft
from ottla.core.groups.embedded_protocol import encode_assignment, parse_assignment, parse_subscription
from ottla.core.groups.group import Group
from ottla.core.groups.partition_map import PartitionMap, map_of, sorted_partitions
from ottla.core.groups.records import (
    ClassicGroupRecord,
    ClassicMemberMetadata,
    ClassicMemberRecord,
    ConsumerGroupRecord,
    GroupRecord,
    TargetAssignmentRecord,
    TargetMemberRecord,
)
from ottla.core.groups.subscription import PROTOCOL_TYPE
from ottla.core.groups.table import GroupState
from ottla.core.groups.target import metadata_hash
from ottla.model.errors import ApiError, ErrorCode

UPGRADING: Final = frozenset({"upgrade", "bidirectional"})
DOWNGRADING: Final = frozenset({"downgrade", "bidirectional"})


def _policy(state: GroupState) -> str:
    return state.config().group_consumer_migration_policy.lower()


def upgraded(state: GroupState, group: Group, now_ms: int) -> Draft:
    """A draft of the consumer group that a classic group becomes; GROUP_ID_NOT_FOUND where it may not."""
    draft = Draft(state, group.group_id, now_ms)
    tombstones = group.tombstones()
    if not group.is_empty:
        if not isinstance(group, ClassicGroup) or not _may_upgrade(state, group):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
        _write_upgrade(draft, group)
        draft.converted = group
    draft.outcome.records[:0] = tombstones
    return draft


def _may_upgrade(state: GroupState, group: ClassicGroup) -> bool:
    return (
        _policy(state) in UPGRADING
        and group.protocol_type == PROTOCOL_TYPE
        and len(group.members) <= state.config().group_consumer_max_size
    )


def _write_upgrade(draft: Draft, classic: ClassicGroup) -> None:
    """Members keep what they have, in an epoch that is the classic generation."""
    group_id, generation = classic.group_id, classic.generation
    taken: set[tuple[UUID, int]] = set()
    members = [_consumer_member(classic, member, draft.state.image(), taken) for member in classic.members.values()]
    for member in members:
        draft.write(member.description(group_id))
    found = metadata_hash(draft.group.topics(), draft.state.image())
    draft.write(ConsumerGroupRecord(group_id=group_id, epoch=generation, metadata_hash=found))
    for member in members:
        partitions = sorted_partitions(member.assigned)
        draft.write(TargetMemberRecord(group_id=group_id, member_id=member.member_id, partitions=partitions))
    draft.write(TargetAssignmentRecord(group_id=group_id, assignment_epoch=generation))
    for member in members:
        draft.write(member.possession(group_id))


def _consumer_member(
    classic: ClassicGroup, member: ClassicMember, image: MetadataImage, taken: set[tuple[UUID, int]]
) -> ConsumerMember:
    """A classic member as a member of a consumer group. No partition is given to two, whatever the leader did."""
    metadata = member.metadata(classic.protocol_name)
    if metadata is None:
        metadata = member.protocols[0].metadata if member.protocols else b""
    subscription = parse_subscription(metadata)
    assigned = parse_assignment(member.assignment)
    if subscription is None or assigned is None:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {classic.group_id} cannot become a consumer group: what member {member.member_id} says about its "
            "subscription or its assignment cannot be read.",
        )
    # In a rebalance that was begun twice the assignment is lost, and only the member knows what it has.
    claimed = partitions_by_id(assigned if member.assignment else subscription.owned, image)
    share = map_of(
        (topic_id, [number for number in numbers if (topic_id, number) not in taken])
        for topic_id, numbers in claimed.items()
    )
    taken.update((topic_id, number) for topic_id, numbers in share.items() for number in numbers)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
        assigned=share,
    )


def answer_waiting_classic(draft: Draft) -> None:
    """Those who wait in a classic group that is being converted are told to join again; all have a session."""
    classic = draft.converted
    if classic is None:
        return
    answer_everybody(classic, ErrorCode.REBALANCE_IN_PROGRESS, draft.outcome)
    for member in classic.members.values():
        key = (SESSION_TIMER, classic.group_id, member.member_id)
        draft.state.timers.set(key, draft.now_ms + member.session_timeout_ms)


def downgrade_if_possible(draft: Draft) -> bool:
    """If only classic members are left, the group becomes a classic group instead of what the draft says."""
    group, state = draft.group, draft.state
    if draft.origin is None or not group.members or group.consumer_member_count or _policy(state) not in DOWNGRADING:
        return False
    if len(group.members) > state.config().group_max_size:
        return False
    members = list(group.members.values())
    protocol = select_protocol(member.classic.supported_protocols for member in members if member.classic is not None)
    if protocol is None:
        return False
    image = state.image()
    record = ClassicGroupRecord(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        current_state_timestamp=draft.now_ms,
        members=tuple(_classic_record(member, protocol, image) for member in members),
    )
    tombstones: list[GroupRecord] = draft.origin.tombstones()
    draft.outcome.records = [*tombstones, record]
    rebalance_soon(state, group.group_id, draft.now_ms)
    return True


def _classic_record(member: ConsumerMember, protocol: str, image: MetadataImage) -> ClassicMemberRecord:
    protocols = {} if member.classic is None else dict(member.classic.supported_protocols)
    subscription = protocols.get(protocol, b"")
    return ClassicMemberRecord(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        0 if member.classic is None else member.classic.session_timeout_ms,
        subscription,
        assignment_bytes(subscription, member.assigned, image),
    )


def assignment_bytes(metadata: bytes, partitions: PartitionMap, image: MetadataImage) -> bytes:
    """An assignment as a classic member reads it that sent this metadata; topics that are gone are left out."""
    subscription = parse_subscription(metadata)
    named = {
        topic.name: tuple(sorted(numbers))
        for topic_id, numbers in partitions.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
    }
    return encode_assignment(0 if subscription is None else subscription.version, named)


def partitions_by_id(partitions: Iterable[tuple[str, Iterable[int]]], image: MetadataImage) -> PartitionMap:
    """Partitions of topics that exist, by the ids of their topics."""
    return map_of((topic.id, numbers) for name, numbers in partitions if (topic := image.topics.get(name)) is not None)
