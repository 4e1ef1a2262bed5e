"""OffsetDelete 0: forgets some offsets of a group, but none of a topic that a member is subscribed to."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.core.groups.offset_commands import DeleteOffsets, TopicPartitions
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.coordinators import then
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "name the group")
    known = ctx.services.image.topics
    topics: list[OffsetDeleteResponseTopic] = []
    pending: list[list[OffsetDeleteResponsePartition]] = []
    asked: list[TopicPartitions] = []
    for topic in request.topics:
        count = len(known[topic.name].partitions) if topic.name in known else 0
        results = [OffsetDeleteResponsePartition(partition_index=item.partition_index) for item in topic.partitions]
        there = [result for result in results if 0 <= result.partition_index < count]
        for result in results:
            if not 0 <= result.partition_index < count:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        pending.append(there)
        asked.append(TopicPartitions(topic.name, [result.partition_index for result in there]))

    def with_codes(codes: list[list[ErrorCode]]) -> OffsetDeleteResponse:
        for results, codes_of_topic in zip(pending, codes, strict=True):
            for result, code in zip(results, codes_of_topic, strict=True):
                result.error_code = code
        return OffsetDeleteResponse(topics=topics)

    return then(
        ctx.services.groups.submit(request.group_id, DeleteOffsets(group_id=request.group_id, topics=asked)), with_codes
    )


def failed(_request: OffsetDeleteRequest, code: ErrorCode, _message: str, _version: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)
