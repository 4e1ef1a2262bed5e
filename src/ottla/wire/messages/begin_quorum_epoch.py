"""BeginQuorumEpoch: a new leader of the metadata log tells the voters of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.quorum_nodes import EpochTopicResult, LeaderEndpoint, NodeEndpoint
from ottla.wire.schema import Int16, Int32, Message, String, Uuid, ignorable, since, tag


class BeginPartition(Message):
    """Who leads. Kafka calls it PartitionData."""

    partition_index: Int32
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_UUID
    leader_id: Int32
    leader_epoch: Int32


class BeginTopic(Message):
    """Partitions of one topic."""

    topic_name: String
    partitions: Sequence[BeginPartition]


class BeginQuorumEpochRequest(Message, api_key=53, versions=(0, 1), flexible_since=1):
    """Tells the voter `voter_id`."""

    cluster_id: String | None = None
    voter_id: Annotated[Int32, since(1), ignorable] = -1
    topics: Sequence[BeginTopic]
    leader_endpoints: Annotated[Sequence[LeaderEndpoint], since(1), ignorable] = []


class BeginQuorumEpochResponse(Message, api_key=53, versions=(0, 1), flexible_since=1):
    """What the voter knows."""

    error_code: Int16
    topics: Sequence[EpochTopicResult] = []
    node_endpoints: Annotated[Sequence[NodeEndpoint], since(1), tag(0)] = []
