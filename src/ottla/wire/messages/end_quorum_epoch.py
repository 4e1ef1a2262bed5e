"""EndQuorumEpoch: the leader of the metadata log lets go, and names who may take over, the best one first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.messages.quorum_nodes import EpochTopicResult, LeaderEndpoint, NodeEndpoint
from ottla.wire.schema import Int16, Int32, Message, String, Uuid, ignorable, since, tag, until


class PreferredCandidate(Message):
    """A voter by node and directory. Kafka calls it ReplicaInfo."""

    candidate_id: Int32
    candidate_directory_id: Uuid


class EndPartition(Message):
    """Who led, and who may follow. Kafka calls it PartitionData."""

    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: Annotated[Sequence[Int32], until(0), ignorable] = []
    preferred_candidates: Annotated[Sequence[PreferredCandidate], since(1), ignorable] = []


class EndTopic(Message):
    """Partitions of one topic."""

    topic_name: String
    partitions: Sequence[EndPartition]


class EndQuorumEpochRequest(Message, api_key=54, versions=(0, 1), flexible_since=1):
    """Tells a voter."""

    cluster_id: String | None = None
    topics: Sequence[EndTopic]
    leader_endpoints: Annotated[Sequence[LeaderEndpoint], since(1), ignorable] = []


class EndQuorumEpochResponse(Message, api_key=54, versions=(0, 1), flexible_since=1):
    """What the voter knows."""

    error_code: Int16
    topics: Sequence[EpochTopicResult] = []
    node_endpoints: Annotated[Sequence[NodeEndpoint], since(1), tag(0)] = []
