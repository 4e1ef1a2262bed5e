"""DeleteRecords: moves the start of partitions up to an offset."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Int64, Message, String


class DeleteRecordsPartition(Message):
    """A partition and its new first offset; -1 is the high watermark."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Sequence[DeleteRecordsPartition]


class DeleteRecordsRequest(Message, api_key=21, versions=(0, 2), flexible_since=2):
    """Asks for records before an offset to be gone."""

    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(Message):
    """The first offset that a partition has now."""

    partition_index: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message):
    """The results of one topic."""

    name: String
    partitions: Sequence[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message, api_key=21, versions=(0, 2), flexible_since=2):
    """One result for each partition."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[DeleteRecordsTopicResult]
