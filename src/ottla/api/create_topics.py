"""CreateTopics 2-7: each topic stands for itself.

The answer leaves when the metadata is on disk and this broker serves the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.api.turns import in_turns
from ottla.core.controller.commands import CreatedTopic, CreateTopics, NewTopic
from ottla.model.configs.describe import describe_topic
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.model.configs.resolve import BrokerConfig

TOPICS_PER_TURN: Final = 16
"""Described in the answer before others have their turn: each has some thirty configs."""

Overrides: TypeAlias = tuple[tuple[str, str], ...]


async def handle(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(item.partition_index, item.broker_ids) for item in topic.assignments],
            [(item.name, item.value) for item in topic.configs],
        )
        for topic in request.topics
    ]
    created = await ctx.services.controller.submit(CreateTopics(topics, validate_only=request.validate_only))
    described = cache(partial(_configs, ctx.services.config))
    return CreateTopicsResponse(
        topics=[_result(topic, described) async for topic in in_turns(created, TOPICS_PER_TURN)]
    )


def failed(request: CreateTopicsRequest, code: ErrorCode, message: str, _version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics
        ]
    )


def _result(topic: CreatedTopic, described: Callable[[Overrides], list[CreatableTopicConfigs]]) -> CreatableTopicResult:
    code, message = topic.outcome
    if code:
        return CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id or ZERO_UUID,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=described(tuple(topic.configs.items())),
    )


def _configs(broker: BrokerConfig, overrides: Overrides) -> list[CreatableTopicConfigs]:
    """What a topic with these configs of its own has. Those that are created together mostly have the same."""
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(dict(overrides), broker)
    ]
