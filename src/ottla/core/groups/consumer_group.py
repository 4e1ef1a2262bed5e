"""A consumer group (KIP-848): what its records say, and the counts that make questions about it cheap.

Theory of operation. Everything that is recorded changes in `apply`, one record at a time; replay calls it, and so does
a draft (see `draft`), which works on a copy. What depends on many members (who owns a partition, how many members use
a name, a pattern, an assignor) is kept up to date member by member, so that a heartbeat asks for it in constant time.

What an editor must keep true:
- `apply` takes records in any order that a compacted log may have: a member may be known by what it has before it is
  known by its description, and the last record about a partition says who owns it.
- What is below "not recorded" may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from ottla.core.groups.consumer_commands import JOIN_EPOCH, LEAVE_EPOCH
from ottla.core.groups.consumer_member import STABLE, ConsumerMember
from ottla.core.groups.group import FROM_COMMIT, GroupKind
from ottla.core.groups.group_settings import GroupSettings
from ottla.core.groups.partition_map import NO_PARTITIONS, PartitionMap, map_of
from ottla.core.groups.reconciliation import lost_something
from ottla.core.groups.records import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    CurrentMemberRecord,
    GroupRecord,
    RegularExpressionRecord,
    TargetAssignmentRecord,
    TargetMemberRecord,
)
from ottla.core.groups.subscription import PROTOCOL_TYPE
from ottla.model.errors import ApiError, ErrorCode

OFFSET_COMMIT_VERSION_MIN: Final = 9
"""The first version of OffsetCommit that carries member epochs."""


class ConsumerGroup:
    """One group. `members` and everything else that is recorded are read by others and changed by `apply` only."""

    __slots__ = (
        "_assignors",
        "_commit_epochs",
        "_names",
        "_owners",
        "assignment_epoch",
        "assignment_timestamp",
        "classic_member_count",
        "classic_protocols",
        "epoch",
        "epoch_seen",
        "group_id",
        "heard_ms",
        "members",
        "metadata_hash",
        "moved_ms",
        "patterns",
        "resolved",
        "settings",
        "stale",
        "static_members",
        "target",
    )

    kind: GroupKind = "consumer"
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance ids with the ids of their members."""
        self.target: dict[str, PartitionMap] = {}
        self.patterns: dict[str, int] = {}
        """Subscribed patterns, and by how many members."""
        self.resolved: dict[str, frozenset[str]] = {}
        """The topics that patterns matched."""
        self.classic_member_count = 0
        self.classic_protocols: dict[str, int] = {}
        """Protocols that classic members speak, and how many of them."""
        self._names: dict[str, int] = {}
        self._assignors: dict[str, int] = {}
        self._owners: dict[UUID, dict[int, str]] = {}
        self._commit_epochs: dict[str, int] = {}
        """Since which epoch nothing has been taken from a member, and it has been here."""
        # Not recorded.
        self.heard_ms: dict[str, int] = {}
        """When members that have nothing to do were heard of; their timers look here before they act."""
        self.settings: GroupSettings | None = None
        self.stale = False
        """Topics may have changed since `metadata_hash` was made."""
        self.epoch_seen = 0
        self.moved_ms = 0
        """When `epoch_seen` was first met."""

    def copy(self) -> ConsumerGroup:
        """The same recorded group, to be changed without changing this one."""
        other = ConsumerGroup(self.group_id)
        other.epoch = self.epoch
        other.metadata_hash = self.metadata_hash
        other.assignment_epoch = self.assignment_epoch
        other.assignment_timestamp = self.assignment_timestamp
        other.classic_member_count = self.classic_member_count
        other.members = self.members.copy()
        other.static_members = self.static_members.copy()
        other.target = self.target.copy()
        other.patterns = self.patterns.copy()
        other.resolved = self.resolved.copy()
        other.classic_protocols = self.classic_protocols.copy()
        other._names = self._names.copy()
        other._assignors = self._assignors.copy()
        other._owners = {topic_id: owners.copy() for topic_id, owners in self._owners.items()}
        other._commit_epochs = self._commit_epochs.copy()
        return other

    # What is asked.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def consumer_member_count(self) -> int:
        """Members that speak the consumer protocol themselves."""
        return len(self.members) - self.classic_member_count

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if all(map(self.is_settled, self.members.values())) else "Reconciling"

    def is_settled(self, member: ConsumerMember) -> bool:
        """Whether the member has all that the target gives it."""
        return member.state == STABLE and member.member_epoch == self.assignment_epoch

    def member(self, member_id: str) -> ConsumerMember:
        """The member, or UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def target_of(self, member_id: str) -> PartitionMap:
        return self.target.get(member_id, NO_PARTITIONS)

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        """The id of the member that has a partition, or has yet to say that it gave it back."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def topics(self) -> set[str]:
        """Names of topics that a member is subscribed to, whether they exist or not."""
        return set(self._names).union(*(self.resolved.get(pattern, ()) for pattern in self.patterns))

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Names of topics that this member is subscribed to."""
        names = frozenset(member.subscribed_topic_names)
        pattern = member.subscribed_topic_regex
        return names if pattern is None else names | self.resolved.get(pattern, frozenset())

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._names or any(topic in self.resolved.get(pattern, ()) for pattern in self.patterns)

    def preferred_assignor(self, offered: tuple[str, ...]) -> str:
        """What most members ask for among what is offered; the first one offered where nobody asks."""
        asked = [name for name in offered if name in self._assignors]
        return max(asked, key=self._assignors.__getitem__, default=offered[0])

    # What offsets and deletion ask.

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """A member may commit in its epoch, and in earlier ones as long as nothing has been taken from it since: its
        commit may have been on the way when it was given more, or when others were."""
        if epoch < 0 and (not self.members or (transactional and not member_id and group_instance_id is None)):
            return
        member = self.member(member_id)
        if not transactional and member.classic is None and version < OFFSET_COMMIT_VERSION_MIN:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Members of consumer groups must use OffsetCommit {OFFSET_COMMIT_VERSION_MIN} or later.",
            )
        if not self._commit_epochs.get(member_id, member.member_epoch) <= epoch <= member.member_epoch:
            self._refuse_epoch(member, epoch)

    def heard_from(self, member_id: str, now_ms: int) -> None:
        member = self.members.get(member_id)
        if member is not None and member.classic is not None:
            self.heard_ms[member_id] = now_ms

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            self._refuse_epoch(member, member_epoch)

    def _refuse_epoch(self, member: ConsumerMember, epoch: int) -> None:
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise ApiError(
            code, f"Epoch {epoch} of member {member.member_id} is not its current one, {member.member_epoch}."
        )

    def check_offset_delete(self) -> None:
        """It can be seen which topics are in use."""

    def check_delete(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} still has members.")

    def offsets_expire_from(self) -> int | None:
        return FROM_COMMIT

    def tombstones(self) -> list[GroupRecord]:
        """In the order in which the parts of a group may go."""
        group_id = self.group_id
        records: list[GroupRecord] = []
        for member_id in self.members:
            records.append(CurrentMemberRecord(group_id=group_id, member_id=member_id, gone=True))
        for member_id in dict.fromkeys((*self.target, *self.members)):
            records.append(TargetMemberRecord(group_id=group_id, member_id=member_id, gone=True))
        records.append(TargetAssignmentRecord(group_id=group_id, gone=True))
        for member_id in self.members:
            records.append(ConsumerMemberRecord(group_id=group_id, member_id=member_id, gone=True))
        for pattern in self.resolved:
            records.append(RegularExpressionRecord(group_id=group_id, regular_expression=pattern, gone=True))
        records.append(ConsumerGroupRecord(group_id=group_id, gone=True))
        return records

    # What records say.

    def apply(self, record: GroupRecord) -> None:
        """Take over what a record of this group says. A tombstone of the group itself is not for the group."""
        _APPLY[type(record)](self, record)

    def _apply_group(self, record: ConsumerGroupRecord) -> None:
        if not record.gone:
            self.epoch = record.epoch
            self.metadata_hash = record.metadata_hash

    def _apply_target_epoch(self, record: TargetAssignmentRecord) -> None:
        self.assignment_epoch = 0 if record.gone else record.assignment_epoch
        self.assignment_timestamp = 0 if record.gone else record.assignment_timestamp

    def _apply_target(self, record: TargetMemberRecord) -> None:
        if record.gone:
            self.target.pop(record.member_id, None)
        else:
            self.target[record.member_id] = map_of(record.partitions)

    def _apply_pattern(self, record: RegularExpressionRecord) -> None:
        if record.gone:
            self.resolved.pop(record.regular_expression, None)
        else:
            self.resolved[record.regular_expression] = frozenset(record.topics)

    def _apply_member(self, record: ConsumerMemberRecord) -> None:
        before = self.members.get(record.member_id)
        if record.gone:
            if before is not None:
                self._forget(before)
            return
        after = (before or ConsumerMember(member_id=record.member_id)).described_by(record)
        if before is not None:
            self._count(before, -1)
            self._free_instance(before)
        self._count(after, 1)
        self.members[after.member_id] = after
        if after.instance_id is not None:
            self.static_members[after.instance_id] = after.member_id

    def _apply_current(self, record: CurrentMemberRecord) -> None:
        before = self.members.get(record.member_id)
        if record.gone:
            if before is not None:
                after = before.moved_to(LEAVE_EPOCH, STABLE, NO_PARTITIONS, NO_PARTITIONS)
                self._hand_over(before, after)
                self.members[record.member_id] = after
                self._commit_epochs.pop(record.member_id, None)
            return
        after = (before or ConsumerMember(member_id=record.member_id)).having(record)
        if (
            before is None
            or before.member_epoch <= JOIN_EPOCH
            or record.member_id not in self._commit_epochs
            or lost_something(before, after)
        ):
            self._commit_epochs[record.member_id] = after.member_epoch
        self._hand_over(before, after)
        self.members[record.member_id] = after

    def _forget(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        self._count(member, -1)
        self._release(member.member_id, (*member.assigned.items(), *member.pending_revocation.items()))
        self._free_instance(member)
        self._commit_epochs.pop(member.member_id, None)
        self.heard_ms.pop(member.member_id, None)

    def _free_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _hand_over(self, before: ConsumerMember | None, after: ConsumerMember) -> None:
        if before is not None:
            self._release(before.member_id, (*before.assigned.items(), *before.pending_revocation.items()))
        for topic_id, numbers in (*after.assigned.items(), *after.pending_revocation.items()):
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, after.member_id))

    def _release(self, member_id: str, partitions: Iterable[tuple[UUID, frozenset[int]]]) -> None:
        for topic_id, numbers in partitions:
            owners = self._owners.get(topic_id, {})
            for number in numbers:
                if owners.get(number) == member_id:
                    del owners[number]
            if not owners:
                self._owners.pop(topic_id, None)

    def _count(self, member: ConsumerMember, change: int) -> None:
        """Let the member count, or count no longer, in everything that is counted by descriptions."""
        for name in member.subscribed_topic_names:
            _add(self._names, name, change)
        if member.subscribed_topic_regex is not None:
            _add(self.patterns, member.subscribed_topic_regex, change)
        if member.server_assignor is not None:
            _add(self._assignors, member.server_assignor, change)
        if member.classic is not None:
            self.classic_member_count += change
            for protocol in member.classic.supported_protocols:
                _add(self.classic_protocols, protocol.name, change)


def _add(counts: dict[str, int], key: str, change: int) -> None:
    count = counts.get(key, 0) + change
    if count > 0:
        counts[key] = count
    else:
        counts.pop(key, None)


_APPLY: Final[dict[type[Any], Callable[[ConsumerGroup, Any], None]]] = {
    ConsumerGroupRecord: ConsumerGroup._apply_group,
    ConsumerMemberRecord: ConsumerGroup._apply_member,
    TargetAssignmentRecord: ConsumerGroup._apply_target_epoch,
    TargetMemberRecord: ConsumerGroup._apply_target,
    CurrentMemberRecord: ConsumerGroup._apply_current,
    RegularExpressionRecord: ConsumerGroup._apply_pattern,
}
