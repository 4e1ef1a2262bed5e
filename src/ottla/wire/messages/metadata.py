"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import AUTHORIZED_OPERATIONS_OMITTED, ZERO_UUID
from ottla.wire.schema import Bool, Int16, Int32, Message, String, Uuid, ignorable, nullable_since, since, until


class MetadataRequestTopic(Message):
    """A topic by its name, or by its id when the name is null."""

    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    name: Annotated[String | None, nullable_since(10)]


class MetadataRequest(Message, api_key=3, versions=(0, 13), flexible_since=9, tail_ignored=True):
    """Asks for topics: null for all of them (in version 0 an empty list), an empty list for none.

    librdkafka 2.16 asks for all topics with a null in four bytes where one is due, which leaves three at the end.
    """

    topics: Annotated[Sequence[MetadataRequestTopic] | None, nullable_since(1)]
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8), until(10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(Message):
    """One broker, as clients reach it on the listener that they asked on."""

    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[String | None, since(1), ignorable] = None


class MetadataResponsePartition(Message):
    """One partition; the leader is -1 while it has none."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7), ignorable] = -1
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    offline_replicas: Annotated[Sequence[Int32], since(5), ignorable] = []


class MetadataResponseTopic(Message):
    """One topic; the name is null where an id was given that nobody knows."""

    error_code: Int16 = 0
    name: Annotated[String | None, nullable_since(12)]
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    is_internal: Annotated[Bool, since(1), ignorable] = False
    partitions: Sequence[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, since(8)] = AUTHORIZED_OPERATIONS_OMITTED


class MetadataResponse(Message, api_key=3, versions=(0, 13), flexible_since=9):
    """The cluster and the topics that were asked for."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: Annotated[String | None, since(2), ignorable] = None
    controller_id: Annotated[Int32, since(1), ignorable] = -1
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = AUTHORIZED_OPERATIONS_OMITTED
    error_code: Annotated[Int16, since(13), ignorable] = 0
