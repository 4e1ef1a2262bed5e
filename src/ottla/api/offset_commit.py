"""OffsetCommit 2-10: a group remembers up to where it has consumed.

Topics have names until version 9 and ids from 10 on. A topic or partition that is not there is refused by itself; what
the coordinator says about the member is the answer for all partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.api.offsets_to_commit import OffsetsToCommit
from ottla.core.groups.offset_commands import CommitOffsets
from ottla.model.errors import ErrorCode
from ottla.runtime.coordinators import then
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

TOPIC_IDS_SINCE: Final = 10


def handle(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    image, by_id = ctx.services.image, ctx.api_version >= TOPIC_IDS_SINCE
    wanted = OffsetsToCommit(OffsetCommitResponsePartition)
    topics = []
    for asked in request.topics:
        found = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = wanted.take(found, asked.partitions, unknown)
        topics.append(OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
    response = OffsetCommitResponse(topics=topics)
    if not wanted.offsets:
        return response

    def with_codes(codes: list[ErrorCode]) -> OffsetCommitResponse:
        wanted.settle(codes)
        return response

    command = CommitOffsets(
        group_id=request.group_id,
        offsets=wanted.offsets,
        member_id=request.member_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        version=ctx.api_version,
    )
    return then(ctx.services.groups.submit(request.group_id, command), with_codes)


def failed(request: OffsetCommitRequest, code: ErrorCode, _message: str, _version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
