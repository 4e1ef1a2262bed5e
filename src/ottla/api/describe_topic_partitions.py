"""DescribeTopicPartitions 0: topics page by page, with eligible leader replicas.

Topics come in the order of their names. A cursor says where the next page begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorized_operations import ON_TOPIC
from ottla.api.cluster_view import INTERNAL_TOPICS, leader_view, missing_topic, offline_replicas
from ottla.core.controller.image import MetadataImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

PARTITIONS_PER_PAGE_MAX = 2000


def handle(ctx: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    image, cursor = ctx.services.image, request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a cursor points to a partition that is 0 or more")
    wanted = {topic.name for topic in request.topics}
    if cursor is not None and wanted and cursor.topic_name not in wanted:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a cursor points to a topic that is asked for")
    names = sorted(wanted or image.topics.keys())
    first_name = cursor.topic_name if cursor is not None else ""
    room = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if name < first_name:
            continue
        start = cursor.partition_index if cursor is not None and name == first_name else 0
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=start)
            )
        topic = image.topics.get(name)
        if topic is None:
            # The one under the cursor too, which was there a page ago: left out, it would pass for complete.
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    name=name, error_code=missing_topic(name).code, topic_authorized_operations=ON_TOPIC
                )
            )
            continue
        end = min(start + room, len(topic.partitions))
        topics.append(_topic(image, topic, start, end, ctx.listener))
        room -= max(0, end - start)
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=end)
            )
    return DescribeTopicPartitionsResponse(topics=topics)


def failed(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, _message: str, _version: int
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code) for topic in request.topics]
    )


def _topic(
    image: MetadataImage, topic: TopicImage, start: int, end: int, listener: str
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index, partition in enumerate(topic.partitions[start:end], start):
        leader_id, error = leader_view(image, partition, listener)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
                offline_replicas=offline_replicas(image, partition),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=ON_TOPIC,
    )
