"""OffsetCommit 2-10: a group remembers up to where it has consumed.

Topics have names until version 9 and ids from 10 on. A topic or partition that is not there is refused by itself; what
the coordinator says about the member is the answer for all partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.core.groups.offset_commands import CommitOffsets, NewOffset
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
    from ottla.core.controller.image import MetadataImage

TOPIC_IDS_SINCE: Final = 10


def handle(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    by_id = ctx.api_version >= TOPIC_IDS_SINCE
    offsets, pending, response = _looked_up(ctx.services.image, request, by_id=by_id)
    if not offsets:
        return response

    def with_codes(codes: list[ErrorCode]) -> OffsetCommitResponse:
        for partition, code in zip(pending, codes, strict=True):
            partition.error_code = code
        return response

    command = CommitOffsets(
        group_id=request.group_id,
        offsets=offsets,
        member_id=request.member_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        version=ctx.api_version,
    )
    return then(ctx.services.groups.submit(request.group_id, command), with_codes)


def _looked_up(
    image: MetadataImage, request: OffsetCommitRequest, *, by_id: bool
) -> tuple[list[NewOffset], list[OffsetCommitResponsePartition], OffsetCommitResponse]:
    """What is to be committed, the parts of the answer that wait for it in the same order, and the whole answer."""
    offsets: list[NewOffset] = []
    pending: list[OffsetCommitResponsePartition] = []
    topics: list[OffsetCommitResponseTopic] = []
    for asked in request.topics:
        found = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if found is None else len(found.partitions)
        partitions = []
        for partition in asked.partitions:
            index = partition.partition_index
            result = OffsetCommitResponsePartition(partition_index=index)
            partitions.append(result)
            if found is None or not 0 <= index < count:
                result.error_code = unknown
                continue
            pending.append(result)
            offsets.append(
                NewOffset(
                    found.name,
                    found.id,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
            )
        topics.append(OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
    return offsets, pending, OffsetCommitResponse(topics=topics)


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
