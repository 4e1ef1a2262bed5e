"""TxnOffsetCommit: a group remembers up to where it has consumed, once a transaction commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int16, Int32, Int64, Message, String, ignorable, since


class TxnOffsetCommitRequestPartition(Message):
    """A partition and the offset to go on with."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    committed_metadata: String | None = None


class TxnOffsetCommitRequestTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Sequence[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Message, api_key=28, versions=(0, 5), flexible_since=3):
    """The offsets, the transaction they belong to, and from version 3 on the member that commits them."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[String, since(3)] = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    topics: Sequence[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Message):
    """What became of one offset."""

    partition_index: Int32
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message):
    """The results of one topic."""

    name: String
    partitions: Sequence[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Message, api_key=28, versions=(0, 5), flexible_since=3):
    """One result for each partition."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[TxnOffsetCommitResponseTopic]
