"""What the client tells about groups, and how it reads what members tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from ottla.model.errors import MalformedMessageError
from ottla.model.ids import TopicPartition
from ottla.wire.messages import consumer_group_describe as modern
from ottla.wire.messages import describe_groups as classic
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.schema import Message, decode

M = TypeVar("M", bound=Message)

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION_MAX: Final = 3
_VERSION_BYTES: Final = 2
_CLASSIC_MEMBER: Final = 0


class GroupType(StrEnum):
    """How a group is run. A broker may know types that this client cannot describe."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, name: str) -> GroupType:
        """The type by the broker's name for it, in whatever case; brokers without types know only classic groups."""
        if not name:
            return cls.CLASSIC
        return cls(name.lower()) if name.lower() in cls._value2member_map_ else cls.UNKNOWN


class ListedGroup(NamedTuple):
    """A group as a list shows it."""

    group_id: str
    type: str
    """In the broker's word, lower case."""
    state: str
    protocol_type: str
    coordinator: int


class CommittedOffset(NamedTuple):
    """Where a group goes on with a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group. `assigned` is empty, too, where the group's members are no consumers."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    """What it will have after the rebalance; None in a classic group, which has no such thing."""
    epoch: int | None = None
    subscribed: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    protocol: str = GroupType.CLASSIC.value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members."""

    group_id: str
    type: GroupType
    state: str
    coordinator: int
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def empty(self) -> bool:
        """Whether nobody is in it, so that its offsets may be changed from outside."""
        return not self.members and self.state in ("Empty", "Dead")


def describe_classic(group: classic.DescribedGroup, coordinator: int) -> GroupDescription:
    """From the answer of DescribeGroups."""
    consumers = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = (_classic_member(member, consumers=consumers) for member in group.members)
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.CLASSIC,
        state=group.group_state,
        coordinator=coordinator,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def describe_modern(group: modern.DescribedGroup, coordinator: int) -> GroupDescription:
    """From the answer of ConsumerGroupDescribe."""
    members = (_modern_member(member) for member in group.members)
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.CONSUMER,
        state=group.group_state,
        coordinator=coordinator,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        assignor=group.assignor_name,
        members=tuple(sorted(members, key=lambda member: member.member_id)),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def read_assignment(blob: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a member's assignment; MalformedMessageError if it is none."""
    if not blob:
        return ()
    assignment = decode_versioned(ConsumerProtocolAssignment, blob)
    found = (
        TopicPartition(topic.topic, number) for topic in assignment.assigned_partitions for number in topic.partitions
    )
    return tuple(sorted(found))


def read_subscription(blob: bytes) -> tuple[str, ...]:
    """The topics in a member's subscription; MalformedMessageError if it is none."""
    return tuple(sorted(decode_versioned(ConsumerProtocolSubscription, blob).topics)) if blob else ()


def decode_versioned(kind: type[M], blob: bytes) -> M:
    """A blob that begins with its version."""
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    if len(blob) < _VERSION_BYTES or version < 0:
        raise MalformedMessageError(f"{kind.__name__}: no version in front")
    return decode(kind, memoryview(blob)[_VERSION_BYTES:], min(version, _VERSION_MAX))


def _classic_member(member: classic.DescribedGroupMember, *, consumers: bool) -> GroupMember:
    assigned: tuple[TopicPartition, ...] = ()
    subscribed: tuple[str, ...] = ()
    if consumers:
        try:
            assigned = read_assignment(bytes(member.member_assignment))
            subscribed = read_subscription(bytes(member.member_metadata))
        except MalformedMessageError:
            pass  # members may tell each other what they like; the rest is worth showing
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=_host(member.client_host),
        assigned=assigned,
        subscribed=subscribed,
    )


def _modern_member(member: modern.Member) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=_host(member.client_host),
        assigned=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        epoch=member.member_epoch,
        subscribed=tuple(sorted(member.subscribed_topic_names)),
        subscribed_regex=member.subscribed_topic_regex or None,
        protocol=(GroupType.CLASSIC if member.member_type == _CLASSIC_MEMBER else GroupType.CONSUMER).value,
    )


def _partitions(assignment: modern.Assignment) -> tuple[TopicPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted(TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions))


def _host(text: str) -> str:
    """Brokers on the JVM write an address with the slash of Java's InetAddress."""
    return text.removeprefix("/")
