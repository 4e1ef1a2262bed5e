"""Metadata tells topics that can never be from those that are not there, and each of them once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from ottla.api import describe_configs, describe_topic_partitions, metadata
from ottla.api.context import RequestContext
from ottla.core.controller.image import MetadataImage, TopicImage
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import AUTHORIZED_OPERATIONS_OMITTED, ZERO_UUID
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import encode

PAID = TopicImage("paid", UUID(int=5))
NO_NAMES = ["my topic", "..", "", "a/b", "x" * 250]


def context(version: int) -> RequestContext:
    services = SimpleNamespace(
        image=MetadataImage(cluster_id="cluster", topics={"paid": PAID}, topics_by_id={PAID.id: PAID}),
        node_id=1,
        absences=None,
        config=SimpleNamespace(auto_create_topics_enable=False),
    )
    return cast(RequestContext, SimpleNamespace(services=services, listener="PLAINTEXT", api_version=version))


def ask(*topics: tuple[str | None, UUID], version: int) -> MetadataResponse:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    try:
        answer = asyncio.run(metadata.handle(context(version), request))
    except ApiError as error:
        answer = metadata.failed(request, error.code, error.message, version)
    encode(answer, version)
    return answer


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_consumer_of_a_topic_that_can_never_be_does_not_wait_for_it(name: str) -> None:
    (topic,) = ask((name, ZERO_UUID), version=13).topics
    assert (topic.name, topic.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)


@pytest.mark.parametrize("name", NO_NAMES)
def test_an_administrator_is_told_that_a_name_is_none(name: str) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
    (topic,) = describe_topic_partitions.handle(context(0), request).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    resource = DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name)
    answer = asyncio.run(describe_configs.handle(context(4), DescribeConfigsRequest(resources=[resource])))
    (result,) = answer.results
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message is not None
    assert result.error_message.startswith("Topic name is invalid")


def test_a_topic_that_may_come_is_waited_for() -> None:
    (topic,) = ask(("orders", ZERO_UUID), version=13).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_named_often_is_answered_once() -> None:
    found = ask(("orders", ZERO_UUID), ("clicks", ZERO_UUID), ("orders", ZERO_UUID), version=13).topics
    assert [topic.name for topic in found] == ["orders", "clicks"]


@pytest.mark.parametrize(("version", "code"), [(10, 42), (11, 42), (12, 100)])
def test_an_id_that_is_not_known_has_an_answer_in_every_version(version: int, code: int) -> None:
    (topic,) = ask(("orders", UUID(int=7)), version=version).topics
    assert topic.error_code == code


def test_where_a_topic_is_asked_for_by_id_names_are_not_looked_at() -> None:
    answer = ask(("orders", ZERO_UUID), (None, PAID.id), (None, ZERO_UUID), ("clicks", UUID(int=7)), version=13)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
        ("paid", PAID.id, ErrorCode.NONE),
        (None, UUID(int=7), ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    allowed = [topic.topic_authorized_operations != AUTHORIZED_OPERATIONS_OMITTED for topic in answer.topics]
    assert allowed == [True, False]


@pytest.mark.parametrize(
    ("topics", "version", "code"),
    [
        ([("orders", ZERO_UUID), ("paid", PAID.id)], 10, ErrorCode.INVALID_REQUEST),
        ([("orders", ZERO_UUID), (None, ZERO_UUID)], 11, ErrorCode.INVALID_REQUEST),
        ([("orders", ZERO_UUID), (None, ZERO_UUID)], 13, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_as_a_whole(
    topics: list[tuple[str | None, UUID]], version: int, code: ErrorCode
) -> None:
    answer = ask(*topics, version=version)
    assert (list(answer.brokers), answer.error_code) == ([], code)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(name or "", code) for name, _ in topics]
