"""Groups as administrators see them: listed, described, deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from ottla.core.coordination import Command, Outcome, Ticket
from ottla.core.groups.classic_group import STABLE, ClassicGroup
from ottla.core.groups.record_limits import record_bytes_max
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.core.groups.table import GroupState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_OFFSET

TOMBSTONE_BYTES: Final = 1100
"""No less than an offset's tombstone has beside the group's id: the longest topic name there is, and some numbers."""


class ListedGroup(NamedTuple):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups(Command[list[ListedGroup]]):
    """Asks for the groups of the shard that are in one of these states and of one of these types."""

    states: frozenset[str] = frozenset()
    """In lower case; all where there is none."""
    kinds: frozenset[str] = frozenset()


class DescribedMember(NamedTuple):
    """A member in a description; its metadata is shown in a stable group only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A classic group."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroup(Command[DescribedGroup]):
    """Asks for a classic group: GROUP_ID_NOT_FOUND where there is none."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroup(Command[bool]):
    """Deletes a group without members, and its offsets. False: some offsets are gone, and it has to be asked again."""

    group_id: str


def _list_groups(state: GroupState, command: ListGroups, ticket: Ticket, _now_ms: int) -> Outcome[GroupRecord]:
    found = [
        ListedGroup(group.group_id, group.protocol_type, group.state_name, group.kind)
        for group in state.groups.values()
        if (not command.states or group.state_name.lower() in command.states)
        and (not command.kinds or group.kind in command.kinds)
    ]
    return Outcome(answers=[(ticket, found)])


def _describe_group(state: GroupState, command: DescribeGroup, ticket: Ticket, _now_ms: int) -> Outcome[GroupRecord]:
    group = state.group(command.group_id)
    if not isinstance(group, ClassicGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} is not a classic group.")
    protocol = group.protocol_name if group.state is STABLE else None
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) or b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    described = DescribedGroup(group.group_id, group.state_name, group.protocol_type, protocol or "", members)
    return Outcome(answers=[(ticket, described)])


def _delete_group(state: GroupState, command: DeleteGroup, ticket: Ticket, _now_ms: int) -> Outcome[GroupRecord]:
    """As many offsets as fit into one batch; with the last of them the group."""
    group = state.group(command.group_id)
    group.check_delete()
    fitting = max(1, record_bytes_max(state) // (TOMBSTONE_BYTES + len(command.group_id.encode())))
    offsets = _offset_tombstones(state, command.group_id)
    records: list[GroupRecord] = list(islice(offsets, fitting))
    done = next(offsets, None) is None
    if done:
        records += group.tombstones()
    return Outcome(records, [(ticket, done)])


def _offset_tombstones(state: GroupState, group_id: str) -> Iterator[OffsetRecord]:
    for topic in dict.fromkeys((*state.offsets.topics(group_id), *state.offsets.unstable(group_id))):
        for partition in state.offsets.partitions(group_id, topic):
            yield OffsetRecord(group_id, topic, partition, NO_OFFSET)


DECISIONS: Final[Mapping[type[Command[Any]], Callable[[GroupState, Any, Ticket, int], Outcome[GroupRecord]]]] = {
    ListGroups: _list_groups,
    DescribeGroup: _describe_group,
    DeleteGroup: _delete_group,
}
