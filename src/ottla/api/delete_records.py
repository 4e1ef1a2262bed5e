"""DeleteRecords 0-2: moves the start of a partition up. The new start is on disk before it is answered.

The answer waits until every replica that lives has done the same: REQUEST_TIMED_OUT if that takes too long, and it will
happen all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

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
    from ottla.runtime.partition import Partition

TO_HIGH_WATERMARK = -1
Deleting: TypeAlias = "DeleteRecordsPartitionResult | tuple[Partition, int]"
"""What is to be answered, or the partition and the offset that its followers have yet to reach."""


async def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    deadline = ctx.services.world.clock.monotonic() + request.timeout_ms / 1000
    topics = []
    deleting: list[list[Deleting]] = []
    for topic in request.topics:
        deleting.append([await _delete(ctx, topic.name, partition) for partition in topic.partitions])
    for topic, partitions in zip(request.topics, deleting, strict=True):
        results = [await _settled(ctx, partition, deadline) for partition in partitions]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


async def _delete(ctx: RequestContext, topic: str, asked: DeleteRecordsPartition) -> Deleting:
    """Delete in the leader's own log."""
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
    if partition.is_sole:
        return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low_watermark)
    return partition, offset


async def _settled(ctx: RequestContext, deleting: Deleting, deadline: float) -> DeleteRecordsPartitionResult:
    """What to answer, when the followers have deleted too."""
    if isinstance(deleting, DeleteRecordsPartitionResult):
        return deleting
    partition, offset = deleting
    left_ms = int(1000 * (deadline - ctx.services.world.clock.monotonic()))
    try:
        await partition.deleted_everywhere(offset, max(left_ms, 0))
        low_watermark = partition.low_watermark
    except OttlaError as error:
        code = refusal(ctx.services, error).code
        return DeleteRecordsPartitionResult(partition_index=partition.index, error_code=code)
    return DeleteRecordsPartitionResult(partition_index=partition.index, low_watermark=low_watermark)
