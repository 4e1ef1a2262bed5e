"""OffsetFetch: up to where groups have consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, Uuid, ignorable, nullable_since, since, until


class OffsetFetchRequestTopic(Message):
    """The partitions of one topic, until version 7."""

    name: String
    partition_indexes: Sequence[Int32]


class OffsetFetchRequestTopics(Message):
    """The partitions of one topic, which has a name in versions 8 and 9 and an id after them."""

    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partition_indexes: Sequence[Int32]


class OffsetFetchRequestGroup(Message):
    """One group; null topics for all that it has offsets of. A member of a consumer group says who it is."""

    group_id: String
    member_id: Annotated[String | None, since(9), ignorable] = None
    member_epoch: Annotated[Int32, since(9), ignorable] = -1
    topics: Sequence[OffsetFetchRequestTopics] | None = None


class OffsetFetchRequest(Message, api_key=9, versions=(1, 10), flexible_since=6):
    """Asks for the offsets of one group, from version 8 on of several."""

    group_id: Annotated[String, until(7)] = ""
    topics: Annotated[Sequence[OffsetFetchRequestTopic] | None, nullable_since(2), until(7)] = []
    groups: Annotated[Sequence[OffsetFetchRequestGroup], since(8)] = []
    require_stable: Annotated[Bool, since(7)] = False


class OffsetFetchResponsePartition(Message):
    """The offset of one partition, -1 where there is none, until version 7."""

    partition_index: Int32
    committed_offset: Int64 = -1
    committed_leader_epoch: Annotated[Int32, since(5), ignorable] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message):
    """The offsets of one topic, until version 7."""

    name: String
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Message):
    """The offset of one partition, -1 where there is none."""

    partition_index: Int32
    committed_offset: Int64 = -1
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Message):
    """The offsets of one topic."""

    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: Sequence[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Message):
    """The offsets of one group."""

    group_id: String
    topics: Sequence[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Message, api_key=9, versions=(1, 10), flexible_since=6):
    """The offsets, from version 8 on by group. Version 1 has errors with its partitions only."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: Annotated[Sequence[OffsetFetchResponseTopic], until(7)] = []
    error_code: Annotated[Int16, since(2), until(7), ignorable] = 0
    groups: Annotated[Sequence[OffsetFetchResponseGroup], since(8)] = []
