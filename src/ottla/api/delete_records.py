"""DeleteRecords 0-2: moves the start of a partition up. The new start is on disk before it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.refusal import refusal
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

TO_HIGH_WATERMARK = -1


async def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        partitions = [await _delete(ctx, topic.name, partition) for partition in topic.partitions]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


async def _delete(ctx: RequestContext, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    services = ctx.services
    try:
        hosted = services.partitions.topic(topic)
        if not hosted.config.cleanup_delete:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"topic {topic} is not cleaned up by deletion")
        partition = services.partitions.leader_of(hosted, asked.partition_index)
        offset = partition.high_watermark if asked.offset == TO_HIGH_WATERMARK else asked.offset
        low_watermark = await services.maintenance.delete_records(partition, offset)
    except OttlaError as error:
        code = refusal(services, error).code
        return DeleteRecordsPartitionResult(partition_index=asked.partition_index, error_code=code)
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low_watermark)
