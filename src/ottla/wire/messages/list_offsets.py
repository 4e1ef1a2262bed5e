"""ListOffsets: the offset for a timestamp, or one of the special positions such as earliest and latest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int8, Int16, Int32, Int64, Message, String, ignorable, since


class ListOffsetsPartition(Message):
    """A partition and the timestamp to look up, or a special negative one."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4), ignorable] = -1
    timestamp: Int64


class ListOffsetsTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsRequest(Message, api_key=2, versions=(1, 11), flexible_since=6):
    """Asks for offsets; a client's replica id is -1."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: Sequence[ListOffsetsTopic]
    timeout_ms: Annotated[Int32, since(10), ignorable] = 0


class ListOffsetsPartitionResponse(Message):
    """The offset and the timestamp found, or -1 for both."""

    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsTopicResponse(Message):
    """The results of one topic."""

    name: String
    partitions: Sequence[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message, api_key=2, versions=(1, 11), flexible_since=6):
    """One result for each partition."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: Sequence[ListOffsetsTopicResponse]
