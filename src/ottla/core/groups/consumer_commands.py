"""What is asked of consumer groups (KIP-848), and the answers. Names and fields are the protocol's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.core.coordination import Command
from ottla.core.groups.records import Partitions

JOIN_EPOCH: Final = 0
"""The epoch of somebody who joins, or begins anew without partitions."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that has left and whose partitions are kept for its return."""
CLIENT_MADE_IDS_SINCE: Final = 1
"""From this version of ConsumerGroupHeartbeat on members choose their ids themselves."""


class MemberHeard(NamedTuple):
    """The answer to ConsumerGroupHeartbeat."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """All that the member may own now; None where it has been told before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat(Command[MemberHeard]):
    """A member joins, is alive, says what changed about it, or leaves. None and -1 mean: as it was."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    """An empty pattern takes the subscription by pattern back."""
    server_assignor: str | None = None
    topic_partitions: Partitions | None = None
    """What the member owns; in any order, and whatever it claims."""
    client_id: str = ""
    client_host: str = ""
    version: int = 1


class DescribedConsumerMember(NamedTuple):
    """One member of a described group."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assigned: Partitions
    target: Partitions
    is_classic: bool


class DescribedConsumerGroup(NamedTuple):
    """The answer to DescribeConsumerGroup."""

    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedConsumerMember, ...]


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup(Command[DescribedConsumerGroup]):
    """Asks for everything about one consumer group; GROUP_ID_NOT_FOUND where there is none."""

    group_id: str
