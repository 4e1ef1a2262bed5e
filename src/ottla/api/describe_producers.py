"""DescribeProducers 0: the idempotent producers that a partition remembers. Every replica answers for itself."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.api.cluster_view import missing_topic
from ottla.api.refusal import refusal
from ottla.model.errors import OttlaError
from ottla.runtime.opening import opened_first
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    places = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    return opened_first(ctx.services.partitions, places, lambda: _response(ctx, request))


def _response(ctx: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(ctx, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        producers = ctx.services.partitions.hosted(topic, index).log.producers.active_producers()
    except OttlaError as error:
        refused = refusal(ctx.services, error) if topic in ctx.services.image.topics else missing_topic(topic)
        return PartitionResponse(partition_index=index, error_code=refused.code, error_message=refused.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=-1
                if producer.transaction_first_offset is None
                else producer.transaction_first_offset,
            )
            for producer in producers
        ],
    )
