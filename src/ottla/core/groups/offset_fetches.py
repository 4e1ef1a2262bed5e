"""Reading committed offsets. A group or a partition without offsets is no error: its offset is -1."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.core.coordination import Outcome, Ticket
from ottla.core.groups.offset_commands import FetchedOffset, FetchedTopic, FetchOffsets, TopicPartitions
from ottla.core.groups.offset_store import OffsetStore
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.table import GroupState
from ottla.model.errors import ErrorCode


def fetch_offsets(state: GroupState, command: FetchOffsets, ticket: Ticket, _now_ms: int) -> Outcome[GroupRecord]:
    """OffsetFetch for one group."""
    group = state.groups.get(command.group_id)
    if group is not None:
        group.check_offset_fetch(command.member_id, command.member_epoch)
    asked = command.topics
    if asked is None:
        topics = state.offsets.topics(command.group_id)
        asked = [TopicPartitions(topic, list(partitions)) for topic, partitions in topics.items()]
    answer = read(state.offsets, command.group_id, asked, require_stable=command.require_stable)
    return Outcome(None, [(ticket, answer)])


def read(
    store: OffsetStore, group_id: str, asked: Sequence[TopicPartitions], *, require_stable: bool
) -> list[FetchedTopic]:
    """What the store has of these partitions. An offset of another topic that had the same name does not count where
    the topic is asked for by its id."""
    committed, unpack = store.topics(group_id), store.packed.unpack
    unstable = store.unstable(group_id) if require_stable else {}
    answer: list[FetchedTopic] = []
    for topic, partitions, topic_id in asked:
        packed_by_partition = committed.get(topic, {})
        held = unstable.get(topic, ())
        offsets: list[FetchedOffset] = []
        for partition in partitions:
            if partition in held:
                offsets.append(FetchedOffset(partition, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            packed = packed_by_partition.get(partition)
            if packed is None:
                offsets.append(FetchedOffset(partition))
                continue
            offset, leader_epoch, metadata, _, _, committed_id = unpack(packed)
            if topic_id.int and committed_id.int and topic_id.int != committed_id.int:
                offsets.append(FetchedOffset(partition))
            else:
                offsets.append(FetchedOffset(partition, offset, leader_epoch, metadata))
        answer.append(FetchedTopic(topic, topic_id, offsets))
    return answer
