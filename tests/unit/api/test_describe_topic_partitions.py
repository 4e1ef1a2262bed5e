"""DescribeTopicPartitions, from page to page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.api import describe_topic_partitions
from ottla.api.authorized_operations import ON_TOPIC
from ottla.api.context import RequestContext
from ottla.core.controller.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest


def test_a_topic_that_was_deleted_between_two_pages_does_not_pass_for_a_shorter_one() -> None:
    services = SimpleNamespace(image=MetadataImage(cluster_id="cluster"))
    context = cast(RequestContext, SimpleNamespace(services=services, listener="PLAINTEXT", api_version=0))
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="gone")], cursor=Cursor(topic_name="gone", partition_index=2000)
    )
    (topic,) = describe_topic_partitions.handle(context, request).topics
    assert (topic.name, topic.error_code) == ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert topic.topic_authorized_operations == ON_TOPIC


def test_a_cursor_on_a_topic_that_is_not_asked_for_does_not_pass_for_the_last_page() -> None:
    services = SimpleNamespace(image=MetadataImage(cluster_id="cluster"))
    context = cast(RequestContext, SimpleNamespace(services=services, listener="PLAINTEXT", api_version=0))
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="orders")], cursor=Cursor(topic_name="users", partition_index=0)
    )
    with pytest.raises(ApiError) as refused:
        describe_topic_partitions.handle(context, request)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    everything = DescribeTopicPartitionsRequest(topics=[], cursor=request.cursor)
    assert describe_topic_partitions.handle(context, everything).topics == []
