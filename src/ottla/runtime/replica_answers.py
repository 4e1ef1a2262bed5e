"""What a follower does with the leader's answer for one partition: append it, or find out why there is nothing to.

What an editor must keep true: an answer counts only if the log still ends where the leader was told that it ends, and
in the leader epoch in which it was asked. Answers to older questions come where a second request has cut a first short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.core.replication import follower
from ottla.core.replication.follower import Decision, Step
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from ottla.core.replication.follower import OwnLog
    from ottla.core.replication.replica_session import Asked
    from ottla.runtime.followed_partition import FollowedPartition, FollowerContext
    from ottla.runtime.peers import Peer
    from ottla.wire.fetch_client import ReplicaRow

EARLIEST: Final = -2


async def append(followed: FollowedPartition, row: ReplicaRow, asked: Asked | None, now_ms: int) -> int:
    """Append what came and learn the rest; returns how many bytes came. OttlaError if that cannot be."""
    own = followed.own()
    if asked is None or not _is_to(asked, followed, own):
        return 0
    records = row.records
    if len(records):
        if followed.begins_inside_of(records):
            await followed.begin_inside_of(records, now_ms)
        else:
            taken = followed.append(records, now_ms)
            if taken and taken < len(records):
                await followed.append_rest(records[taken:], now_ms)
        if not followed.is_current:
            return 0
        if followed.own().end_offset == own.end_offset:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes came, and not one whole batch")
    followed.learn(row.high_watermark, row.log_start_offset)
    followed.state.succeeded()
    return len(records)


def append_at_once(followed: FollowedPartition, row: ReplicaRow, asked: Asked | None, now_ms: int) -> int:
    """`append` without a wait: returns how many bytes came, or -1 if that cannot be, or is not all there is to do.

    What was appended by then stays, and `append` finds nothing left to do. OttlaError as there.
    """
    opened = followed.partition.log_or_none
    if (
        row.error_code
        or row.diverging_epoch is not None
        or asked is None
        or opened is None
        or asked.fetch_offset != opened.log_end_offset
        or asked.leader_epoch != followed.state.leader_epoch
        or not followed.is_current
    ):
        return -1
    size = len(row.records)
    if size:
        if opened.epochs.latest < 0:
            return -1  # The leader's log may begin inside of the first batch.
        if not followed.append(row.records, now_ms):
            return -1
    if row.high_watermark > followed.partition.high_watermark or row.log_start_offset > opened.log_start_offset:
        followed.learn(row.high_watermark, row.log_start_offset)
    followed.state.succeeded()
    return -1 if opened.flush_due() else size


async def reconcile(
    followed: FollowedPartition, row: ReplicaRow, asked: Asked | None, peer: Peer, context: FollowerContext
) -> Decision | None:
    """Do what is not an append: cut the log or begin it anew. A decision to wait is returned, for the caller to do."""
    own, diverging = followed.own(), row.diverging_epoch
    if asked is None or not _is_to(asked, followed, own):
        return None
    if row.error_code or diverging is None:
        decision = follower.understand_error(row.error_code)
    else:
        epochs = followed.partition.log.epochs
        decision = follower.understand_divergence(
            diverging.epoch, diverging.end_offset, own, lambda epoch: epochs.end_offset_for(epoch, own.end_offset)
        )
    if decision.step is Step.FIND_START:
        decision = follower.understand_start(await _leader_start(followed, peer, context), own)
    if not followed.is_current:
        return None
    if decision.step is Step.TRUNCATE:
        await followed.truncate_to(decision.offset)
    elif decision.step is Step.RESTART:
        await followed.restart_at(decision.offset)
    else:
        return decision
    return None


def _is_to(asked: Asked, followed: FollowedPartition, own: OwnLog) -> bool:
    """Whether an answer to this question says something about the log as it is, and as it is led."""
    return asked.fetch_offset == own.end_offset and asked.leader_epoch == followed.state.leader_epoch


async def _leader_start(followed: FollowedPartition, peer: Peer, context: FollowerContext) -> int:
    """Where the leader's log begins; -1 if it does not say."""
    partition = followed.partition
    asked = ListOffsetsPartition(
        partition_index=partition.index, current_leader_epoch=followed.state.leader_epoch, timestamp=EARLIEST
    )
    request = ListOffsetsRequest(
        replica_id=context.node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])]
    )
    answer = await peer.request(request, ListOffsetsResponse, timeout_ms=context.config().replica_socket_timeout_ms)
    found = [entry for topic in answer.topics for entry in topic.partitions]
    return found[0].offset if len(found) == 1 and not found[0].error_code else -1
