"""ElectLeaders: makes the preferred replica, or an unclean one, the leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int8, Int16, Int32, Message, String, since


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic: String
    partitions: Sequence[Int32]


class ElectLeadersRequest(Message, api_key=43, versions=(0, 2), flexible_since=2):
    """Asks for elections, preferred (0) or unclean (1); null for every partition."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: Sequence[TopicPartitions] | None
    timeout_ms: Int32 = 60_000


class PartitionResult(Message):
    """What became of one partition."""

    partition_id: Int32
    error_code: Int16 = 0
    error_message: String | None = None


class ReplicaElectionResult(Message):
    """The results of one topic."""

    topic: String
    partition_result: Sequence[PartitionResult]


class ElectLeadersResponse(Message, api_key=43, versions=(0, 2), flexible_since=2):
    """One result for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: Sequence[ReplicaElectionResult]
