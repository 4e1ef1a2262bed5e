"""CreatePartitions 0-3: more partitions for topics; there are never fewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import CreatePartitions, MorePartitions
from ottla.model.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    topics = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [item.broker_ids for item in topic.assignments],
        )
        for topic in request.topics
    ]
    results = await ctx.services.controller.submit(CreatePartitions(topics, validate_only=request.validate_only))
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=result.name, error_code=result.outcome.code, error_message=result.outcome.message
            )
            for result in results
        ]
    )


def failed(request: CreatePartitionsRequest, code: ErrorCode, message: str, _version: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
