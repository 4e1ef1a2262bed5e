"""CreateTopics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String, Uuid, ignorable, since, tag


class CreatableReplicaAssignment(Message):
    """The replicas of one partition, the preferred one first."""

    partition_index: Int32
    broker_ids: Sequence[Int32]


class CreatableTopicConfig(Message):
    """One config of a topic to be created."""

    name: String
    value: String | None


class CreatableTopic(Message):
    """A topic to be created; -1 partitions or replicas mean the broker's default, or that assignments are given."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: Sequence[CreatableReplicaAssignment] = []
    configs: Sequence[CreatableTopicConfig] = []


class CreateTopicsRequest(Message, api_key=19, versions=(2, 7), flexible_since=5):
    """Asks for topics, or only whether they could be had."""

    topics: Sequence[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Bool = False


class CreatableTopicConfigs(Message):
    """One config that a created topic has, and where it comes from."""

    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool


class CreatableTopicResult(Message):
    """What became of one topic; null configs where the client may not see them."""

    name: String
    topic_id: Annotated[Uuid, since(7), ignorable] = ZERO_UUID
    error_code: Int16 = 0
    error_message: String | None = None
    topic_config_error_code: Annotated[Int16, since(5), tag(0), ignorable] = 0
    num_partitions: Annotated[Int32, since(5), ignorable] = -1
    replication_factor: Annotated[Int16, since(5), ignorable] = -1
    configs: Annotated[Sequence[CreatableTopicConfigs] | None, since(5), ignorable] = []


class CreateTopicsResponse(Message, api_key=19, versions=(2, 7), flexible_since=5):
    """One result for each topic."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[CreatableTopicResult]
