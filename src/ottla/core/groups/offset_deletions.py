"""Offsets that are forgotten because somebody says so, or because their topic has gone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from ottla.core.controller.image import ImageDelta, TopicImage
from ottla.core.coordination import Outcome, Ticket
from ottla.core.groups.offset_commands import DeleteOffsets
from ottla.core.groups.offset_store import Sweep
from ottla.core.groups.offset_sweeps import STEP_MAX, start
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.core.groups.table import GroupState
from ottla.model.errors import ErrorCode
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
        start(state, of_deleted(state, delta.topics_deleted), 0)
    return Outcome()


def of_deleted(state: GroupState, topics: Iterable[TopicImage]) -> Sweep:
    """The tombstones of what was committed for these topics, but not for newer ones of the same names."""
    ids = {topic.name: topic.id for topic in topics}
    for group_id in list(state.groups):
        yield len(ids), []
        for topic in [topic for topic in ids if state.offsets.has_topic(group_id, topic)]:
            partitions = iter(state.offsets.partitions(group_id, topic))
            while chunk := list(islice(partitions, STEP_MAX)):
                yield len(chunk), _tombstones(state, group_id, topic, chunk, ids[topic])


def _tombstones(
    state: GroupState, group_id: str, topic: str, partitions: list[int], topic_id: UUID
) -> list[GroupRecord]:
    gone = (ZERO_UUID, topic_id)
    return [
        OffsetRecord(group_id, topic, partition, NO_OFFSET)
        for partition in partitions
        if any(found in gone for found in state.offsets.topic_ids(group_id, topic, partition))
    ]
