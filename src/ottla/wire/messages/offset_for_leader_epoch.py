"""OffsetForLeaderEpoch: where a leader epoch ended, so that clients and followers notice truncation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int16, Int32, Int64, Message, String, ignorable, since


class OffsetForLeaderPartition(Message):
    """A partition and the epoch whose end is wanted."""

    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderTopic(Message):
    """The partitions of one topic."""

    topic: String
    partitions: Sequence[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Message, api_key=23, versions=(2, 4), flexible_since=4):
    """Asks where epochs ended; a client's replica id is -1."""

    replica_id: Annotated[Int32, since(3), ignorable] = -2
    topics: Sequence[OffsetForLeaderTopic]


class EpochEndOffset(Message):
    """The largest epoch not above the one asked for, and where it ended."""

    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Message):
    """The results of one topic."""

    topic: String
    partitions: Sequence[EpochEndOffset]


class OffsetForLeaderEpochResponse(Message, api_key=23, versions=(2, 4), flexible_since=4):
    """One result for each partition."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetForLeaderTopicResult]
