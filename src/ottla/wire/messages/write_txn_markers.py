"""WriteTxnMarkers: a transaction coordinator tells the partitions of a transaction how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int8, Int16, Int32, Int64, Message, String, ignorable, since


class WritableTxnMarkerTopic(Message):
    """The partitions of one topic."""

    name: String
    partition_indexes: Sequence[Int32]


class WritableTxnMarker(Message):
    """The end of one transaction; the result is true for a commit."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


class WriteTxnMarkersRequest(Message, api_key=27, versions=(1, 2), flexible_since=1):
    """The markers to write."""

    markers: Sequence[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Message):
    """What became of a marker in one partition."""

    partition_index: Int32
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Message):
    """The results of one topic."""

    name: String
    partitions: Sequence[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Message):
    """The results of one marker."""

    producer_id: Int64
    topics: Sequence[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Message, api_key=27, versions=(1, 2), flexible_since=1):
    """One result for each marker and partition."""

    markers: Sequence[WritableTxnMarkerResult]
