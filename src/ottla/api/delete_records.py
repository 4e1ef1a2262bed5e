"""DeleteRecords 0-2: moves the start of a partition up. The new start is on disk before it is answered.

The starts of many partitions are stored together. The answer waits until every replica that lives has done the same:
REQUEST_TIMED_OUT if that takes too long, and it will happen all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.api.cluster_view import INTERNAL_TOPICS
from ottla.api.refusal import refusal
from ottla.api.turns import in_turns
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.runtime.partition import Partition

TO_HIGH_WATERMARK = -1
DELETIONS_PER_TURN: Final = 8
"""Each may open a log."""
RESULTS_PER_TURN: Final = 256

Deleting: TypeAlias = "ErrorCode | tuple[Partition, int]"
"""Why not, or the partition and the offset at which it begins."""


async def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    deadline = ctx.services.world.clock.monotonic() + request.timeout_ms / 1000
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    deleting = [_delete(ctx, topic, row) async for topic, row in in_turns(asked, DELETIONS_PER_TURN)]
    starts: dict[Partition, int] = {}
    for partition, offset in (each for each in deleting if isinstance(each, tuple)):
        starts[partition] = max(offset, starts.get(partition, 0))
    failed = await ctx.services.maintenance.raise_starts(starts)
    codes = {partition: refusal(ctx.services, error).code for partition, error in failed.items()}
    results = [
        await _result(ctx, row, begun, codes, deadline)
        async for (_, row), begun in in_turns(zip(asked, deleting, strict=True), RESULTS_PER_TURN)
    ]
    return DeleteRecordsResponse(topics=_by_topic(request.topics, results))


def _delete(ctx: RequestContext, topic: str, asked: DeleteRecordsPartition) -> Deleting:
    """Where the leader's own log is to begin."""
    services = ctx.services
    try:
        hosted = services.partitions.topic(topic)
        if topic in INTERNAL_TOPICS and 0 <= asked.partition_index < len(hosted.partitions):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic} is internal")
        partition = services.partitions.leader_of(hosted, asked.partition_index)
        if hosted.config.cleanup_compact and not hosted.config.cleanup_delete:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"topic {topic} is not cleaned up by deletion")
        offset = partition.high_watermark if asked.offset == TO_HIGH_WATERMARK else asked.offset
        return partition, services.maintenance.checked_start(partition, offset)
    except OttlaError as error:
        return refusal(services, error).code


async def _result(
    ctx: RequestContext,
    asked: DeleteRecordsPartition,
    deleting: Deleting,
    failed: Mapping[Partition, ErrorCode],
    deadline: float,
) -> DeleteRecordsPartitionResult:
    """What to answer, when the followers have deleted too."""
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index)
    try:
        if isinstance(deleting, ErrorCode):
            raise ApiError(deleting)
        partition, offset = deleting
        partition.check_leads()
        if partition in failed:
            raise ApiError(failed[partition])
        if not partition.is_sole:
            left_ms = int(1000 * (deadline - ctx.services.world.clock.monotonic()))
            await partition.deleted_everywhere(offset, max(left_ms, 0))
        result.low_watermark = partition.low_watermark
    except OttlaError as error:
        result.error_code = refusal(ctx.services, error).code
    return result


def _by_topic(
    topics: Sequence[DeleteRecordsTopic], results: Iterable[DeleteRecordsPartitionResult]
) -> list[DeleteRecordsTopicResult]:
    each = iter(results)
    return [
        DeleteRecordsTopicResult(name=topic.name, partitions=list(islice(each, len(topic.partitions))))
        for topic in topics
    ]
