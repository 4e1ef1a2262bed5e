"""One member of a consumer group: how it described itself, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ottla.core.groups.partition_map import NO_PARTITIONS, PartitionMap, map_of, sorted_partitions
from ottla.core.groups.records import ClassicMemberMetadata, ConsumerMemberRecord, CurrentMemberRecord

STABLE: Final = 0
"""The member has what it shall have in its epoch."""
UNREVOKED_PARTITIONS: Final = 1
"""It must give partitions back before it may go to the next epoch."""
UNRELEASED_PARTITIONS: Final = 2
"""It is in the target's epoch and waits for partitions that others have not given back."""


def _nothing() -> PartitionMap:
    return NO_PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """Never changed: a change makes another one. `state` is one of the three above; another one is of a later version
    of the records, and its member has to begin anew."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    """Sorted, no name twice."""
    subscribed_topic_regex: str | None = None
    """None or not empty."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol; see migration."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: int = STABLE
    assigned: PartitionMap = field(default_factory=_nothing)
    pending_revocation: PartitionMap = field(default_factory=_nothing)

    @property
    def is_subscribed(self) -> bool:
        return bool(self.subscribed_topic_names) or self.subscribed_topic_regex is not None

    def moved_to(self, epoch: int, state: int, assigned: PartitionMap, pending: PartitionMap) -> ConsumerMember:
        """The member with another share, in this epoch."""
        previous = self.previous_member_epoch if epoch == self.member_epoch else self.member_epoch
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=previous,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )

    def described_by(self, record: ConsumerMemberRecord) -> ConsumerMember:
        """The member as the record describes it, with what it has."""
        return replace(
            self,
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            subscribed_topic_names=record.subscribed_topic_names,
            subscribed_topic_regex=record.subscribed_topic_regex or None,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            server_assignor=record.server_assignor,
            classic=record.classic,
        )

    def having(self, record: CurrentMemberRecord) -> ConsumerMember:
        """The member with what the record says that it has."""
        return replace(
            self,
            member_epoch=record.member_epoch,
            previous_member_epoch=record.previous_member_epoch,
            state=record.state,
            assigned=map_of(record.assigned),
            pending_revocation=map_of(record.pending_revocation),
        )

    def description(self, group_id: str) -> ConsumerMemberRecord:
        return ConsumerMemberRecord(
            group_id=group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=self.subscribed_topic_names,
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic=self.classic,
        )

    def possession(self, group_id: str) -> CurrentMemberRecord:
        return CurrentMemberRecord(
            group_id=group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned=sorted_partitions(self.assigned),
            pending_revocation=sorted_partitions(self.pending_revocation),
        )
