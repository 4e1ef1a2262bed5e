"""A classic group: its members agree on one protocol, and one of them, the leader, assigns the work.

Theory of operation. A group goes round: members join (PreparingRebalance) until all of them have or the time is up; a
new generation begins and everybody waits for the leader's assignment (CompletingRebalance); with it the group is Stable
until somebody comes, goes or changes. Without members it is Empty. What is recorded is a generation once it is stable,
and that a group is empty; the way there is in no record, and members that lose it join again.

What an editor must keep true:
- `waiting_joins`, `supported` and `static_members` say what `members` says: change members by the methods only.
- Members keep the order in which they came: whoever came first leads after the leader has gone.
- Nothing here sets timers or makes answers; `classic_rebalance` does. A ticket is forgotten only when it is answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from ottla.core.groups.classic_commands import JoinedMember
from ottla.core.groups.classic_member import ClassicMember
from ottla.core.groups.group import FROM_COMMIT, GroupKind
from ottla.core.groups.records import ClassicGroupRecord, ClassicProtocol, GroupRecord
from ottla.core.groups.subscription import PROTOCOL_TYPE, subscribed_topics
from ottla.model.errors import ApiError, ErrorCode


class ClassicState(Enum):
    """Where in its round a group is, by Kafka's names. A group that is Dead is not there any more."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = ClassicState.EMPTY
PREPARING: Final = ClassicState.PREPARING_REBALANCE
COMPLETING: Final = ClassicState.COMPLETING_REBALANCE
STABLE: Final = ClassicState.STABLE


def select_protocol(offers: Iterable[tuple[ClassicProtocol, ...]]) -> str | None:
    """Among the protocols that everybody offers, the one that most prefer to the others."""
    names = [[protocol.name for protocol in offer] for offer in offers]
    common = set(names[0]).intersection(*names[1:]) if names else set()
    votes: dict[str, int] = {}
    for offered in names:
        vote = next((name for name in offered if name in common), None)
        if vote is not None:
            votes[vote] = votes.get(vote, 0) + 1
    return max(votes, key=votes.__getitem__, default=None)


class ClassicGroup:
    """One group. Implements `Group`."""

    __slots__ = (
        "_subscribed",
        "generation",
        "group_id",
        "initial",
        "initial_delay_ms",
        "initial_remaining_ms",
        "leader",
        "members",
        "new_member_added",
        "pending",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "replacement",
        "state",
        "state_timestamp_ms",
        "static_members",
        "supported",
        "waiting_joins",
    )

    def __init__(self, group_id: str, now_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_timestamp_ms = now_ms
        """When the group came into this state; -1 where that is not known."""
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance ids with the ids of the members that have them."""
        self.supported: dict[str, int] = {}
        """How many members offer a protocol, by its name."""
        self.waiting_joins = 0
        """How many members wait for the answer to JoinGroup."""
        self.pending: dict[str, None] = {}
        """Member ids that were handed out and with which nobody has joined yet, oldest first."""
        self.pending_sync: set[str] = set()
        """Members that have not asked for their assignment in this generation."""
        self.initial = False
        """The rebalance began with an empty group: more members are waited for, even when all are there."""
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.replacement: ClassicMember | None = None
        """A static member that takes the place of another one as soon as that is recorded."""
        self._subscribed: tuple[frozenset[str] | None] | None = None

    @classmethod
    def from_record(cls, record: ClassicGroupRecord) -> ClassicGroup:
        """The group in the generation that was recorded."""
        group = cls(record.group_id, record.current_state_timestamp)
        group.protocol_type = record.protocol_type
        group.protocol_name = record.protocol
        group.generation = record.generation
        group.leader = record.leader
        group.state = STABLE if record.members else EMPTY
        for member in record.members:
            group.add(ClassicMember.from_record(member, record.protocol))
        return group

    def settle(self, record: ClassicGroupRecord) -> None:
        """The generation with its assignments is recorded: the group is stable. Members are those of the record."""
        if self.replacement is not None:
            self.replace_static(self.replacement)
            self.replacement = None
        recorded = {member.member_id: member for member in record.members}
        for member_id in [member_id for member_id in self.members if member_id not in recorded]:
            self.remove(member_id)
        for member_id, member in recorded.items():
            if member_id not in self.members:
                self.add(ClassicMember.from_record(member, record.protocol))
            self.members[member_id].assignment = member.assignment
        self.generation = record.generation
        self.protocol_type = record.protocol_type
        self.protocol_name = record.protocol
        self.leader = record.leader
        self.enter(STABLE, record.current_state_timestamp)

    def to_record(self, now_ms: int, assignments: Mapping[str, bytes]) -> ClassicGroupRecord:
        """What is recorded of this generation with these assignments."""
        protocol = self.protocol_name or ""
        return ClassicGroupRecord(
            group_id=self.group_id,
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=now_ms,
            members=tuple(
                member.to_record(protocol, assignments.get(member.member_id, b"")) for member in self.members.values()
            ),
        )

    # As every group.

    @property
    def kind(self) -> GroupKind:
        return "classic"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """Members commit in their generation. Anybody may without one where the group is empty, and in a transaction:
        old clients did not say there who they are."""
        if epoch < 0 and self.state is EMPTY:
            return
        if epoch >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            self.check_generation(epoch)
        elif not transactional and self.state is not EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has members: only they may commit")
        if not transactional and self.state is COMPLETING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "wait for the assignment of this generation")

    def heard_from(self, member_id: str, now_ms: int) -> None:
        member = self.members.get(member_id)
        if member is not None and self.state in (STABLE, PREPARING):
            member.deadline_ms = now_ms + member.session_timeout_ms

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may read the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        if self.state is not EMPTY and self.protocol_type != PROTOCOL_TYPE:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has members that are no consumers")

    def check_delete(self) -> None:
        if self.state is not EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.subscribed_topics()
        return self.protocol_type == PROTOCOL_TYPE if topics is None else topic in topics

    def offsets_expire_from(self) -> int | None:
        if not self.protocol_type:
            return FROM_COMMIT
        if self.state is EMPTY:
            return self.state_timestamp_ms
        is_known = self.state is STABLE and self.subscribed_topics() is not None
        return FROM_COMMIT if is_known else None

    def tombstones(self) -> list[GroupRecord]:
        return [ClassicGroupRecord(group_id=self.group_id, gone=True)]

    # Members.

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """The member, if it is one: FENCED_INSTANCE_ID where another one took its place."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is not None and current != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{group_instance_id} is in use by a newer member")
            if current is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {group_instance_id}")
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of {self.group_id}: join again")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {self.generation}")

    def supports(self, protocol_type: str, protocols: tuple[ClassicProtocol, ...]) -> bool:
        """Whether somebody who offers these can be a member: there is a protocol that everybody has."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.supported.get(protocol.name, 0) == everybody for protocol in protocols
        )

    def add(self, member: ClassicMember) -> None:
        """A member that is not in the group yet; the first one leads."""
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.waiting_joins += member.join_ticket is not None
        self.pending.pop(member.member_id, None)
        self._count_protocols(member, 1)

    def remove(self, member_id: str) -> None:
        """The member is gone; its tickets must have been answered."""
        self.pending.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.waiting_joins -= member.join_ticket is not None
        self._count_protocols(member, -1)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, new: ClassicMember) -> ClassicMember:
        """`new` takes over the instance id, the assignment and the role of the member that has it; gives that one."""
        old = self.members[self.static_members[new.group_instance_id or ""]]
        new.assignment = old.assignment
        leads = self.leader == old.member_id
        self.remove(old.member_id)
        self.add(new)
        if leads:
            self.leader = new.member_id
        return old

    def update(self, member: ClassicMember, protocols: tuple[ClassicProtocol, ...]) -> None:
        """The member offers other protocols now."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def wait_for_join(self, member: ClassicMember, ticket: int | None) -> None:
        """The member waits with this ticket, or no longer."""
        self.waiting_joins += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        for name, _metadata in member.protocols:
            count = self.supported.get(name, 0) + by
            if count:
                self.supported[name] = count
            else:
                self.supported.pop(name, None)
        self._subscribed = None

    # The round.

    @property
    def all_joined(self) -> bool:
        return self.waiting_joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def enter(self, state: ClassicState, now_ms: int) -> None:
        self.state = state
        self.state_timestamp_ms = now_ms
        self._subscribed = None

    def elect(self) -> bool:
        """Makes sure that the leader is one who has joined. False where nobody has."""
        joined = [member.member_id for member in self.members.values() if member.join_ticket is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    def next_generation(self, now_ms: int) -> None:
        """Begins with the members that there are."""
        self.generation += 1
        self.initial = False
        self.pending_sync.clear()
        self.protocol_name = select_protocol(member.protocols for member in self.members.values())
        self.enter(COMPLETING if self.members else EMPTY, now_ms)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Everybody, as the leader is told."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name) or b"")
            for member in self.members.values()
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """What the members read; None where they are no consumers, or do not say it in a way that can be read."""
        if self._subscribed is None:
            self._subscribed = (self._read_subscriptions(),)
        return self._subscribed[0]

    def _read_subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != PROTOCOL_TYPE or (self.members and self.protocol_name is None):
            return None
        topics: set[str] = set()
        for member in self.members.values():
            metadata = member.metadata(self.protocol_name)
            names = None if metadata is None else subscribed_topics(metadata)
            if names is None:
                return None
            topics |= names
        return frozenset(topics)
