"""ListPartitionReassignments: the partitions whose replicas move just now."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Message, String


class ListPartitionReassignmentsTopics(Message):
    """Partitions of one topic."""

    name: String
    partition_indexes: Sequence[Int32]


class ListPartitionReassignmentsRequest(Message, api_key=46, versions=(0, 0), flexible_since=0):
    """Asks about these partitions; null for all."""

    timeout_ms: Int32 = 60_000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Message):
    """Where a partition is, and which replicas come and go."""

    partition_index: Int32
    replicas: Sequence[Int32]
    adding_replicas: Sequence[Int32]
    removing_replicas: Sequence[Int32]


class OngoingTopicReassignment(Message):
    """The partitions of one topic that move."""

    name: String
    partitions: Sequence[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Message, api_key=46, versions=(0, 0), flexible_since=0):
    """What moves; a partition that does not is left out."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: Sequence[OngoingTopicReassignment]
