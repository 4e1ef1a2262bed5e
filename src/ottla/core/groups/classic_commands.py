"""What is asked of classic groups, and the answers. Names and fields are the protocol's.

A member of a classic group may talk to a group that has become a consumer group (and the other way round): JoinGroup,
SyncGroup, Heartbeat and LeaveGroup for a group whose kind is `consumer` are decided by `migration.CLASSIC_DECISIONS`,
with these commands and these answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.coordination import Command
from ottla.core.groups.records import ClassicProtocol
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode


class JoinedMember(NamedTuple):
    """What the leader is told about a member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinedGroup(NamedTuple):
    """The answer to JoinGroup."""

    error_code: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """Everybody in the group, for the leader only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup(Command[JoinedGroup]):
    """Somebody wants to be a member, or goes on being one in the next generation."""

    group_id: str
    member_id: str
    """Empty for somebody whom the group does not know."""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[ClassicProtocol, ...]
    """As the member prefers them, no name twice."""
    member_id_required: bool = True
    """The client understands that it is given an id and has to join with it."""
    skip_assignment_supported: bool = True
    reason: str | None = None


class SyncedGroup(NamedTuple):
    """The answer to SyncGroup."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup(Command[SyncedGroup]):
    """A member asks for its assignment; the leader brings everybody's."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """Member ids with what they shall do."""


@dataclass(frozen=True, slots=True)
class Heartbeat(Command[ErrorCode]):
    """A member is alive. The answer is NONE or REBALANCE_IN_PROGRESS."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves. Without a member id whoever has the instance id is meant."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    """What became of one who wanted to leave."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(Command[tuple[LeftMember, ...]]):
    """Members leave, or an administrator removes them."""

    group_id: str
    members: tuple[LeavingMember, ...]


def check_named(command: JoinGroup | SyncGroup | Heartbeat | LeaveGroup, _config: BrokerConfig) -> None:
    """Offsets may be committed for the group without a name; nobody can be a member of it."""
    if not command.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group has an id")
