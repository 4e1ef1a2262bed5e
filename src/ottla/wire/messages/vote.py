"""Vote: a replica of the metadata log asks another to elect it; a pre-vote only asks whether it would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.quorum_nodes import NodeEndpoint
from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, Uuid, ignorable, since, tag


class VotePartition(Message):
    """Who asks, and how far its log is. Kafka calls it PartitionData, like the one in the response."""

    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_UUID
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_UUID
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Annotated[Bool, since(2)] = False


class VoteTopic(Message):
    """Partitions of one topic."""

    topic_name: String
    partitions: Sequence[VotePartition]


class VoteRequest(Message, api_key=52, versions=(0, 2), flexible_since=0):
    """Asks the voter `voter_id` for its vote."""

    cluster_id: String | None = None
    voter_id: Annotated[Int32, since(1), ignorable] = -1
    topics: Sequence[VoteTopic]


class VotePartitionResult(Message):
    """Whether the vote was given, and the epoch and leader that the voter knows."""

    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: Bool


class VoteTopicResult(Message):
    """The partitions of one topic."""

    topic_name: String
    partitions: Sequence[VotePartitionResult]


class VoteResponse(Message, api_key=52, versions=(0, 2), flexible_since=0):
    """The voter's answer."""

    error_code: Int16
    topics: Sequence[VoteTopicResult]
    node_endpoints: Annotated[Sequence[NodeEndpoint], since(1), tag(0)] = []
