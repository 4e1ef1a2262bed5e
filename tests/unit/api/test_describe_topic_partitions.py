"""DescribeTopicPartitions, from page to page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ottla.api import describe_topic_partitions
from ottla.api.context import RequestContext
from ottla.core.controller.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest


def test_a_topic_that_was_deleted_between_two_pages_does_not_pass_for_a_shorter_one() -> None:
    services = SimpleNamespace(image=MetadataImage(cluster_id="cluster"))
    context = cast(RequestContext, SimpleNamespace(services=services, listener="PLAINTEXT", api_version=0))
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="gone")], cursor=Cursor(topic_name="gone", partition_index=2000)
    )
    (topic,) = describe_topic_partitions.handle(context, request).topics
    assert (topic.name, topic.error_code) == ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
