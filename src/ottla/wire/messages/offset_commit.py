"""OffsetCommit: a group remembers up to where it has consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import Int16, Int32, Int64, Message, String, Uuid, ignorable, since, until


class OffsetCommitRequestPartition(Message):
    """A partition and the offset to go on with."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6), ignorable] = -1
    committed_metadata: String | None = None


class OffsetCommitRequestTopic(Message):
    """The partitions of one topic, which has a name until version 9 and an id after it."""

    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: Sequence[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message, api_key=8, versions=(2, 10), flexible_since=8):
    """The offsets, and the member that commits them: -1 and an empty member id outside of any group."""

    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(7)] = None
    retention_time_ms: Annotated[Int64, until(4), ignorable] = -1
    topics: Sequence[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Message):
    """What became of one offset."""

    partition_index: Int32
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message):
    """The results of one topic."""

    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: Sequence[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message, api_key=8, versions=(2, 10), flexible_since=8):
    """One result for each partition."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: Sequence[OffsetCommitResponseTopic]
