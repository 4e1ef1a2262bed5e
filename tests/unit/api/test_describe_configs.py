"""Who asks for the configs of everything holds up nobody, and gets each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.api import describe_configs
from ottla.api.context import RequestContext
from ottla.core.controller.image import MetadataImage, TopicImage
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)

TOPICS = [f"topic-{number}" for number in range(100)]


class CountedOffload:
    """Runs at once what is for a thread, and says how often that was."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        return work(*arguments)


def ask(offload: CountedOffload, *names: str) -> list[str]:
    results = describe(offload, *((ResourceType.TOPIC, name) for name in names))
    assert all(result.error_code == 0 and len(result.configs) > 30 for result in results)
    return [result.resource_name for result in results]


def describe(offload: CountedOffload, *asked: tuple[ResourceType, str]) -> list[DescribeConfigsResult]:
    image = MetadataImage(
        cluster_id="cluster",
        topics={name: TopicImage(name, UUID(int=number + 1), ()) for number, name in enumerate(TOPICS)},
    )
    config = BrokerConfig.from_properties({"log.dirs": "nowhere"})
    services = SimpleNamespace(image=image, node_id=1, config=config, world=SimpleNamespace(offload=offload))
    ctx = cast(RequestContext, SimpleNamespace(services=services, api_version=4))
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in asked]
    return asyncio.run(describe_configs.handle(ctx, DescribeConfigsRequest(resources=resources))).results


def test_a_tool_that_shows_all_topics_does_not_hold_up_the_clients() -> None:
    offload = CountedOffload()
    assert ask(offload, *TOPICS) == TOPICS
    assert offload.calls == 1


def test_one_topic_is_told_at_once() -> None:
    offload = CountedOffload()
    assert ask(offload, "topic-7") == ["topic-7"]
    assert offload.calls == 0


def test_a_short_question_has_no_endless_answer() -> None:
    assert ask(CountedOffload(), *["topic-7"] * 1000) == ["topic-7"]


def test_a_group_without_a_name_is_a_mistake() -> None:
    results = describe(CountedOffload(), (ResourceType.GROUP, ""), (ResourceType.CLIENT_METRICS, ""))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
