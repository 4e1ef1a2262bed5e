"""DeleteTopics 1-6: by name, or from version 6 on by id.

When the answer leaves the names are free; files are removed later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import DeleteTopics, TopicReference
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    deleted = await ctx.services.controller.submit(DeleteTopics(_references(request)))
    await ctx.services.log_directories.deletions_settled()
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name if topic.name is not None else "" if ctx.api_version < 6 else None,
                topic_id=topic.topic_id or ZERO_UUID,
                error_code=topic.outcome.code,
                error_message=topic.outcome.message,
            )
            for topic in deleted
        ]
    )


def failed(request: DeleteTopicsRequest, code: ErrorCode, message: str, _version: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id or ZERO_UUID, error_code=code, error_message=message
            )
            for topic in _references(request)
        ]
    )


def _references(request: DeleteTopicsRequest) -> list[TopicReference]:
    by_name = [TopicReference(name=name) for name in request.topic_names]
    return by_name + [
        TopicReference(name=topic.name, topic_id=None if topic.topic_id == ZERO_UUID else topic.topic_id)
        for topic in request.topics
    ]
