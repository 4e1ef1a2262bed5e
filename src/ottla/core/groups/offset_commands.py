"""What is asked about offsets, and the answers. Names and fields are the protocol's.

Whoever asks has looked up the topics: a command names partitions that exist, by name and, for a commit, by id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from ottla.core.coordination import Command
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, ZERO_UUID


class NewOffset(NamedTuple):
    """An offset to be committed."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None


new_offset: Final[Callable[[tuple[str, UUID, int, int, int, str | None]], NewOffset]] = partial(
    tuple.__new__, NewOffset
)
"""What calling the class does, without a Python frame."""


@dataclass(slots=True)
class CommitOffsets(Command[list[ErrorCode]]):
    """OffsetCommit. Answered with one code for each offset, in their order.

    Nobody changes one; it is not frozen because that would make it four times as slow to make.
    """

    group_id: str
    offsets: Sequence[NewOffset]
    member_id: str = ""
    generation_id_or_member_epoch: int = -1
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    version: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransactionalOffsets(Command[list[ErrorCode]]):
    """TxnOffsetCommit, of a transaction that is known to be open. Answered like CommitOffsets."""

    group_id: str
    offsets: Sequence[NewOffset]
    producer_id: int
    producer_epoch: int
    member_id: str = ""
    generation_id: int = -1
    group_instance_id: str | None = None
    version: int = 5


class TopicPartitions(NamedTuple):
    """Some partitions of a topic. The id is zero where the topic was asked for by name."""

    topic: str
    partitions: Sequence[int]
    topic_id: UUID = ZERO_UUID


class FetchedOffset(NamedTuple):
    """What a group has of one partition: offset -1 where it has nothing."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    """The offsets of one topic."""

    topic: str
    topic_id: UUID
    offsets: list[FetchedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets(Command[list[FetchedTopic]]):
    """OffsetFetch for one group. Without topics: all that the group has offsets of."""

    group_id: str
    topics: Sequence[TopicPartitions] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets(Command[list[list[ErrorCode]]]):
    """OffsetDelete. Answered with one code for each partition of each topic, in their order."""

    group_id: str
    topics: Sequence[TopicPartitions]
