"""The facts that `__consumer_offsets` is made of. Names and fields are those of Kafka's group coordinator records.

Each record says which key it has and, by `gone=True` where it can be, that there is nothing under that key any more:
such a record is written with a null value, a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.model.ids import ZERO_UUID


class OffsetRecord(NamedTuple):
    """A group has consumed a partition up to `offset`; `offset` -1 is a tombstone: the group has no offset there."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    """-1 unless an old client asked for a retention time of its own."""
    topic_id: UUID = ZERO_UUID


offset_record: Final[Callable[[tuple[str, str, int, int, int, str, int, int, UUID]], OffsetRecord]] = partial(
    tuple.__new__, OffsetRecord
)
"""What calling the class does, without a Python frame."""


class ClassicMemberRecord(NamedTuple):
    """A member of a classic group in a stable generation."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupRecord:
    """GroupMetadata: a classic group as it is in its generation. Without members the group is empty."""

    group_id: str
    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: int = -1
    members: tuple[ClassicMemberRecord, ...] = ()
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRecord:
    """ConsumerGroupMetadata: the epoch of a consumer group, and the hash of the topic metadata it rests on."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    gone: bool = False


class ClassicProtocol(NamedTuple):
    """A protocol that a classic member offers, and what it says in it."""

    name: str
    metadata: bytes


class ClassicMemberMetadata(NamedTuple):
    """What a consumer group knows about a member that speaks the classic protocol."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberRecord:
    """ConsumerGroupMemberMetadata: a member of a consumer group, as it described itself."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    gone: bool = False


Partitions: TypeAlias = tuple[tuple[UUID, tuple[int, ...]], ...]
"""Partitions by topic id, sorted by both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentRecord:
    """ConsumerGroupTargetAssignmentMetadata: the epoch of the assignment that a group works towards."""

    group_id: str
    assignment_epoch: int = 0
    assignment_timestamp: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMemberRecord:
    """ConsumerGroupTargetAssignmentMember: what a member shall have in the end."""

    group_id: str
    member_id: str
    partitions: Partitions = ()
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMemberRecord:
    """ConsumerGroupCurrentMemberAssignment: what a member has now, and what it still has to give back."""

    group_id: str
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: int = 0
    assigned: Partitions = ()
    pending_revocation: Partitions = ()
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionRecord:
    """ConsumerGroupRegularExpression: the topics that a pattern matched, in which version of the metadata."""

    group_id: str
    regular_expression: str
    topics: tuple[str, ...] = ()
    version: int = 0
    timestamp: int = 0
    gone: bool = False


GroupRecord: TypeAlias = (
    OffsetRecord
    | ClassicGroupRecord
    | ConsumerGroupRecord
    | ConsumerMemberRecord
    | TargetAssignmentRecord
    | TargetMemberRecord
    | CurrentMemberRecord
    | RegularExpressionRecord
)
