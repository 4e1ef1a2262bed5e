"""OffsetForLeaderEpoch 2-4: where a leader epoch ended: so readers notice that what they have was cut back here.

The leader answers, consumers and followers alike, and up to the end of its log.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.api.refusal import refusal
from ottla.model.errors import OttlaError
from ottla.runtime import leader_epochs
from ottla.runtime.opening import opened_first
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    places = ((topic.topic, partition.partition) for topic in request.topics for partition in topic.partitions)
    return opened_first(ctx.services.partitions, places, lambda: _response(ctx, request))


def _response(ctx: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(ctx, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(ctx: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = ctx.services.partitions.leader(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        epoch, end_offset = leader_epochs.end_offset_for(partition, asked.leader_epoch)
    except OttlaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=refusal(ctx.services, error).code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
