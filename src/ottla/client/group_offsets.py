"""Offsets of a group on the wire: what is asked of its coordinator and what the answers say.

Topics are named, which versions up to 9 of OffsetCommit and OffsetFetch do; later ones have ids, and the id of a topic
that is gone could not be shown to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.client.connection import Connection
from ottla.client.errors import BrokerError, NotFoundError, broker_error
from ottla.client.group_descriptions import CommittedOffset
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NAMES_UNTIL: Final = 9
_SEVERAL_GROUPS_SINCE: Final = 8
_STABLE_SINCE: Final = 7


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int | CommittedOffset],
    *,
    member_id: str = "",
    generation: int = -1,
) -> OffsetCommitRequest:
    """OffsetCommit by topic names; without member and generation it comes from outside the group."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, given in offsets.items():
        position = given if isinstance(given, CommittedOffset) else CommittedOffset(given)
        topics.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
    )


def send_commit(connection: Connection, request: OffsetCommitRequest) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    version = min(connection.version_of(OffsetCommitRequest), NAMES_UNTIL)
    answer = connection.receive(connection.send(request, OffsetCommitResponse, version=version))
    return {
        TopicPartition(topic.name, result.partition_index): result.error_code
        for topic in answer.topics
        for result in topic.partitions
    }


def fetch_request(
    group_id: str, wanted: Mapping[str, Sequence[int]] | None, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    """OffsetFetch for these partitions by topic, or for all that the group has offsets of."""
    if version >= _SEVERAL_GROUPS_SINCE:
        topics = None
        if wanted is not None:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=given) for name, given in wanted.items()]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=require_stable
        )
    if wanted is None:
        return OffsetFetchRequest(
            group_id=group_id, topics=None, require_stable=require_stable and version >= _STABLE_SINCE
        )
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=given) for name, given in wanted.items()],
        require_stable=require_stable and version >= _STABLE_SINCE,
    )


def committed_offsets(answer: OffsetFetchResponse, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """The offsets in an answer, without the partitions that have none."""
    group = answer.groups[0] if answer.groups else answer
    subject = f"cannot fetch offsets of group {group_id!r}"
    check_group(group.error_code, subject, group_id)
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in group.topics:
        for entry in topic.partitions:
            check_group(entry.error_code, f"{subject} in {topic.name}-{entry.partition_index}", group_id)
            if entry.committed_offset >= 0:
                key = TopicPartition(topic.name, entry.partition_index)
                found[key] = CommittedOffset(entry.committed_offset, entry.committed_leader_epoch, entry.metadata or "")
    return found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partition numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def check_group(code: int, subject: str, group_id: str) -> None:
    """Raise what a code means for a group; NotFoundError if there is none of that name."""
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise NotFoundError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}; see `ottla group list` (GROUP_ID_NOT_FOUND)"
        )
    if code != ErrorCode.NONE:
        raise _retriable(broker_error(code, subject))


def _retriable(error: BrokerError) -> BrokerError:
    """Offsets that a transaction is about to change are known as soon as it has ended."""
    error.retriable = error.retriable or error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    return error
