"""Offsets that are forgotten because somebody says so, or because their topic has gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from uuid import UUID

from ottla.core.controller.image import ImageDelta, TopicImage
from ottla.core.coordination import Outcome, Ticket
from ottla.core.groups.offset_commands import DeleteOffsets, NewOffset
from ottla.core.groups.offset_store import Sweep
from ottla.core.groups.offset_sweeps import STEP_MAX, start
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.core.groups.table import GroupState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_OFFSET, ZERO_UUID


def delete_offsets(state: GroupState, command: DeleteOffsets, ticket: Ticket, _now_ms: int) -> Outcome[GroupRecord]:
    """OffsetDelete. Offsets of a topic that a member is subscribed to stay. One that is not there is no error."""
    group_id = command.group_id
    group = state.group(group_id)
    group.check_offset_delete()
    tombstones: list[GroupRecord] = []
    codes: list[list[ErrorCode]] = []
    for topic, partitions, _ in command.topics:
        if group.is_subscribed_to(topic):
            codes.append([ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * len(partitions))
            continue
        codes.append([ErrorCode.NONE] * len(partitions))
        there = [partition for partition in partitions if state.offsets.has(group_id, topic, partition)]
        tombstones += [OffsetRecord(group_id, topic, partition, NO_OFFSET) for partition in there]
    return Outcome(tombstones, [(ticket, codes)])


def metadata_changed(state: GroupState, delta: ImageDelta) -> Outcome[GroupRecord]:
    """The offsets of deleted topics go, in slices: that may be many."""
    if delta.topics_deleted:
        for topic in delta.topics_deleted:
            state.offsets.forgetting.setdefault(topic.name, []).append(topic.id)
        start(state, of_deleted(state, delta.topics_deleted), 0)
    return Outcome()


def check_outlives_deletions(state: GroupState, group_id: str, offsets: Iterable[NewOffset]) -> None:
    """Have a transaction try again whose offsets would go with those of a deleted topic of the same name.

    A tombstone names a partition, not a topic's id, and forgets what transactions hold too: it has to come first.
    """
    forgetting = state.offsets.forgetting
    if not forgetting:
        return
    for topic, _, partition, *_ in offsets:
        if topic in forgetting and _is_of(state, group_id, topic, partition, forgetting[topic]):
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the offsets of group {group_id} for an earlier topic {topic} are being deleted; try again",
            )


def of_deleted(state: GroupState, topics: Sequence[TopicImage]) -> Sweep:
    """The tombstones of what was committed for these topics, but not for newer ones of the same names."""
    ids: dict[str, list[UUID]] = {}
    for topic in topics:
        ids.setdefault(topic.name, []).append(topic.id)
    for group_id in list(state.groups):
        yield len(ids), []
        for name in [name for name in ids if state.offsets.has_topic(group_id, name)]:
            partitions = iter(state.offsets.partitions(group_id, name))
            while chunk := list(islice(partitions, STEP_MAX)):
                yield len(chunk), _tombstones(state, group_id, name, chunk, ids[name])
    for topic in topics:
        state.offsets.forgotten(topic.name, topic.id)


def _tombstones(
    state: GroupState, group_id: str, topic: str, partitions: list[int], topic_ids: list[UUID]
) -> list[GroupRecord]:
    return [
        OffsetRecord(group_id, topic, partition, NO_OFFSET)
        for partition in partitions
        if _is_of(state, group_id, topic, partition, topic_ids)
    ]


def _is_of(state: GroupState, group_id: str, topic: str, partition: int, topic_ids: list[UUID]) -> bool:
    """Whether what the group has for a partition is of a topic that had one of these ids, or may be."""
    found = state.offsets.topic_ids(group_id, topic, partition)
    return any(topic_id == ZERO_UUID or topic_id in topic_ids for topic_id in found)
