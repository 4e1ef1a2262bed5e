"""AlterPartitionReassignments: moves the replicas of partitions to other brokers, or stops that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int16, Int32, Message, String, ignorable, since


class ReassignablePartition(Message):
    """A partition and its replicas to be; null stops the move that is under way."""

    partition_index: Int32
    replicas: Sequence[Int32] | None = None


class ReassignableTopic(Message):
    """Partitions of one topic."""

    name: String
    partitions: Sequence[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=(0, 1), flexible_since=0):
    """Asks for moves, each for itself."""

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: Sequence[ReassignableTopic]


class ReassignablePartitionResponse(Message):
    """Whether one partition moves."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = None


class ReassignableTopicResponse(Message):
    """The answers for one topic."""

    name: String
    partitions: Sequence[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=(0, 1), flexible_since=0):
    """One answer per partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1), ignorable] = True
    error_code: Int16 = 0
    error_message: String | None = None
    responses: Sequence[ReassignableTopicResponse]
