"""The answer to CreateTopics describes each topic, and holds up nobody where they are many."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.api import create_topics, turns
from ottla.api.context import RequestContext, Services
from ottla.core.controller.commands import CreatedTopic, CreateTopics, Outcome
from ottla.model.configs.describe import describe_topic
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.unit.api.turns import Turns

DONE = Outcome(ErrorCode.NONE, None)


class Controller:
    """Creates what it is asked for, but for names that begin with a dash."""

    async def submit(self, command: CreateTopics) -> list[CreatedTopic]:
        return [
            CreatedTopic(topic.name, Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, "no"))
            if topic.name.startswith("-")
            else CreatedTopic(topic.name, DONE, UUID(int=number), 3, 1, cast(Any, dict(topic.configs)))
            for number, topic in enumerate(command.topics, 1)
        ]


def create(*topics: tuple[str, dict[str, str]]) -> CreateTopicsResponse:
    asked = [
        CreatableTopic(
            name=name,
            num_partitions=3,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in topics
    ]
    services = cast(Services, SimpleNamespace(controller=Controller(), config=BrokerConfig.from_properties({})))
    ctx = RequestContext(services, 19, 7, 1, "c", "h", "PLAINTEXT")
    return asyncio.run(create_topics.handle(ctx, CreateTopicsRequest(topics=asked)))


def own(answer: CreateTopicsResponse, number: int) -> dict[str, str | None]:
    """What a topic has that is not a default."""
    return {config.name: config.value for config in answer.topics[number].configs or () if config.config_source == 1}


def test_each_topic_is_answered_with_its_own_configs() -> None:
    compacted, small = {"cleanup.policy": "compact"}, {"segment.bytes": "1048576"}
    answer = create(("a", {}), ("b", compacted), ("-", {}), ("c", small), ("d", compacted))
    assert [topic.name for topic in answer.topics] == ["a", "b", "-", "c", "d"]
    assert [own(answer, number) for number in range(5)] == [{}, compacted, {}, small, compacted]
    assert [topic.topic_id.int for topic in answer.topics] == [1, 2, 0, 4, 5]
    assert (answer.topics[2].error_code, answer.topics[2].configs) == (ErrorCode.INVALID_TOPIC_EXCEPTION, [])


def test_topics_with_the_same_configs_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Turns(monkeypatch, turns)
    monkeypatch.setattr(create_topics, "describe_topic", counted.counted(describe_topic))
    answer = create(*[(f"t{number}", {}) for number in range(100)])
    assert counted.calls == 1
    assert len({len(topic.configs or ()) for topic in answer.topics}) == 1


def test_others_have_their_turn_while_very_many_topics_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Turns(monkeypatch, turns)
    monkeypatch.setattr(create_topics, "describe_topic", counted.counted(describe_topic))
    answer = create(*[(f"t{number}", {"retention.ms": str(number)}) for number in range(100)])
    assert counted.calls == 100
    assert counted.most_calls <= create_topics.TOPICS_PER_TURN
    assert [own(answer, number)["retention.ms"] for number in range(100)] == [str(number) for number in range(100)]


def test_a_topic_that_was_not_created_has_no_configs_as_with_kafka() -> None:
    """Null would say that the client may not see them."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    (topic,) = create_topics.failed(request, ErrorCode.NOT_CONTROLLER, "no", 7).topics
    assert (topic.error_code, topic.configs) == (ErrorCode.NOT_CONTROLLER, [])
