"""CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Bool, Int16, Int32, Message, String


class CreatePartitionsAssignment(Message):
    """The replicas of one new partition, the preferred one first."""

    broker_ids: Sequence[Int32]


class CreatePartitionsTopic(Message):
    """A topic and the number of partitions it shall have in all; null assignments leave the placement to the broker."""

    name: String
    count: Int32
    assignments: Sequence[CreatePartitionsAssignment] | None = None


class CreatePartitionsRequest(Message, api_key=37, versions=(0, 3), flexible_since=2):
    """Asks for more partitions."""

    topics: Sequence[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    """What became of one topic."""

    name: String
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message, api_key=37, versions=(0, 3), flexible_since=2):
    """One result for each topic."""

    throttle_time_ms: Int32 = 0
    results: Sequence[CreatePartitionsTopicResult]
