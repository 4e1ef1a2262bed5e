"""Metadata 0-13: brokers, topics, partitions and their leaders; creates a topic that is missing, where that is
allowed.

A topic that is created on the way is answered at once with its leaders, where Kafka answers LEADER_NOT_AVAILABLE
first and lets the client ask again. Topics may be asked for by id from version 12 on, and where one is, names are not
looked at; 10 and 11 have the field, and INVALID_REQUEST for it. A name that no topic may have is
INVALID_TOPIC_EXCEPTION. Answers for very many partitions are built in a thread. A client that asks what it may do is
told: everything, as there are no ACLs yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.api.authorized_operations import ON_TOPIC, cluster_operations
from ottla.api.cluster_view import (
    INTERNAL_TOPICS,
    broker_addresses,
    leader_view,
    missing_topic,
    offline_replicas,
)
from ottla.core.controller.commands import CreateTopics, NewTopic
from ottla.core.controller.image import MetadataImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.runtime.internal_topics import topics_arrive
from ottla.runtime.network import PeerError
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

AskedTopics: TypeAlias = Sequence[MetadataRequestTopic] | None

EMPTY_MEANS_ALL_VERSION = 0
BY_ID_SINCE = 12
PARTITIONS_INLINE_MAX = 500


async def handle(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    asked = request.topics
    if asked is not None:
        asked = _named_alike(asked, ctx.api_version)
        if not asked and ctx.api_version == EMPTY_MEANS_ALL_VERSION:
            asked = None
    if asked and request.allow_auto_topic_creation and ctx.services.config.auto_create_topics_enable:
        failures = await _create_missing(ctx, asked)
    else:
        failures = {}
    absences = ctx.services.absences
    if absences is not None:
        await absences.settled()
    image = ctx.services.image
    if len(image.topics if asked is None else asked) > PARTITIONS_INLINE_MAX:
        return await ctx.services.world.offload.run(_response, ctx, request, image, asked, failures)
    return _response(ctx, request, image, asked, failures)


def _named_alike(asked: Sequence[MetadataRequestTopic], version: int) -> Sequence[MetadataRequestTopic]:
    """Each topic once: those with ids, or, where none has one, those with names. ApiError: in Kafka's codes."""
    by_id = {topic.topic_id: topic for topic in asked if topic.topic_id != ZERO_UUID}
    if by_id and version >= BY_ID_SINCE:
        return list(by_id.values())
    by_name = {topic.name: topic for topic in asked}
    if by_id or (None in by_name and version < BY_ID_SINCE):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"version {version} does not know topics by their ids")
    if None in by_name:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic has neither a name nor an id")
    return list(by_name.values())


def failed(request: MetadataRequest, code: ErrorCode, _message: str, _version: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(name=topic.name or "", topic_id=topic.topic_id, error_code=code)
            for topic in request.topics or ()
        ],
        error_code=code,
    )


async def _create_missing(ctx: RequestContext, asked: AskedTopics) -> dict[str, ErrorCode]:
    """Create the topics that are asked for by name and are not there; returns why some could not be."""
    topics = ctx.services.image.topics
    names = [
        topic.name
        for topic in asked or ()
        if topic.name is not None and topic.topic_id == ZERO_UUID and topic.name not in topics
    ]
    if not names:
        return {}
    new_topic = ctx.services.internal_topics.new_topic
    topics_to_create = [new_topic(name) if name in INTERNAL_TOPICS else NewTopic(name) for name in names]
    failures: dict[str, ErrorCode]
    try:
        created = await (ctx.services.channel or ctx.services.controller).submit(CreateTopics(topics_to_create))
    except (ApiError, PeerError):
        # No controller now. The rest of the answer is worth having, and whoever wants these asks again.
        failures = dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
        return failures
    failures = {
        topic.name: topic.outcome.code
        for topic in created
        if topic.outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
    await topics_arrive(lambda: ctx.services.image, (name for name in names if name not in failures))
    return failures


def _response(
    ctx: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    asked: AskedTopics,
    failures: dict[str, ErrorCode],
) -> MetadataResponse:
    if asked is None:
        topics = [_topic(ctx, image, topic) for topic in image.topics.values()]
    else:
        topics = [_asked_topic(ctx, image, item, failures) for item in asked]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = ON_TOPIC
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in broker_addresses(image, ctx.listener, ctx.services.absences)
        ],
        cluster_id=image.cluster_id,
        controller_id=ctx.services.node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(asked=request.include_cluster_authorized_operations),
    )


def _asked_topic(
    ctx: RequestContext, image: MetadataImage, asked: MetadataRequestTopic, failures: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    if asked.name is None or asked.topic_id != ZERO_UUID:
        found = image.topics_by_id.get(asked.topic_id)
        if found is None:
            return MetadataResponseTopic(name=None, topic_id=asked.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        return _topic(ctx, image, found)
    found = image.topics.get(asked.name)
    if found is None:
        error = failures.get(asked.name) or missing_topic(asked.name).code
        return MetadataResponseTopic(name=asked.name, error_code=error)
    return _topic(ctx, image, found)


def _topic(ctx: RequestContext, image: MetadataImage, topic: TopicImage) -> MetadataResponseTopic:
    partitions = []
    absences = ctx.services.absences
    listener, absent = ctx.listener, () if absences is None else absences.brokers
    for index, partition in enumerate(topic.partitions):
        leader_id, error = leader_view(image, partition, listener, absent)
        partitions.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=offline_replicas(image, partition),
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )
