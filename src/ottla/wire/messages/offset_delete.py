"""OffsetDelete: forgets some offsets of a group."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Message, String


class OffsetDeleteRequestPartition(Message):
    """One partition."""

    partition_index: Int32


class OffsetDeleteRequestTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Sequence[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Message, api_key=47, versions=(0, 0)):
    """Names the group and the partitions."""

    group_id: String
    topics: Sequence[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Message):
    """What became of one offset."""

    partition_index: Int32
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message):
    """The results of one topic."""

    name: String
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Message, api_key=47, versions=(0, 0)):
    """One result for each partition, unless the request failed as a whole."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetDeleteResponseTopic] = []
