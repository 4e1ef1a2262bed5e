"""Who leads a partition: the one place that turns a change of a partition into the record for it.

Theory of operation. Whoever changes a partition (a broker comes, goes, or starts after a crash; a leader asks for
another ISR; replicas move; a user asks for an election) says what is to change, and `Electorate.change` adds what
follows from it: the leader, the eligible leader replicas (ELR, KIP-966), the last known leader. A leader is, in this
order: the current one if it may stay, the first replica in sync, the first in the ELR if nobody is in sync, the last
known leader if both are empty, and, where unclean elections are allowed, the first replica that lives.

The ELR holds replicas that left the ISR while it was smaller than min.insync.replicas. They have everything that was
acknowledged, because a leader does not move its high watermark while its ISR is that small. So a partition has either
an ISR, or nobody in sync and an ELR that remembers who may lead; who was alone in sync and goes is in the ELR then.

What an editor must keep true:
- Nobody outside of ISR and ELR leads, except by an unclean election, and then it is the whole ISR.
- The ELR is empty as soon as the ISR has min.insync.replicas members: from then on the high watermark moves without
  those in it. `config_effects` keeps that true when the minimum changes; config and ELR change in one batch.
- A replica that may have lost records (its broker crashed) leaves ISR and ELR, unless nobody else is in them.
- A replica whose directory its broker does not have (any more) does not lead, whatever the lists say.
- Who leads is not fenced, nor about to stop, unless nobody else can lead yet.

With `eligible.leader.replicas.version` 0 there is no ELR and no last known leader. Then a partition without a leader
has an ISR all the same: who was in sync last stays in it, and is waited for. It goes only if what it had is known to be
lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.core.controller.assignments import default_directory
from ottla.core.controller.context import Context
from ottla.core.controller.feature_levels import ELR_VERSION
from ottla.core.controller.image import BrokerImage, PartitionImage, TopicImage
from ottla.core.controller.records import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionChangeRecord
from ottla.model.configs.resolve import resolve_topic

NO_ELR: Final = 0
"""As a number of replicas that must be in sync: no ISR is so small that an ELR is needed."""
RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader came by an unclean election, and has not said yet that it is done with what follows from that."""


class ElectionKind(Enum):
    """What an election is for."""

    ONLINE = "online"
    """Keep the leader, or find one."""
    PREFERRED = "preferred"
    """The first replica if it may lead, else as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, and if there is nobody, any replica that lives."""


class _Elected(NamedTuple):
    leader: int
    unclean: bool = False


class _Rules(NamedTuple):
    min_insync: int
    unclean: bool


class Electorate:
    """Elections on the metadata of one decision.

    `brokers` are the brokers as they will be once the decision's records are applied; those of the image by default.
    """

    __slots__ = ("_brokers", "_context", "_has_elr", "_rules")

    def __init__(self, context: Context, brokers: Mapping[int, BrokerImage] | None = None) -> None:
        self._context = context
        self._brokers = context.image.brokers if brokers is None else brokers
        self._has_elr = context.image.feature_level(ELR_VERSION) > 0
        self._rules: dict[str, _Rules] = {}

    def may_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        """Whether a replica could lead if it is in sync: its broker is active, and has its directory."""
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.active and has_directory(broker, partition)

    def min_insync(self, topic: str, partition: PartitionImage) -> int:
        """How many replicas of a partition must be in sync; never more than it has."""
        return min(self._rules_of(topic).min_insync, len(partition.replicas))

    def _lives(self, partition: PartitionImage, broker_id: int) -> bool:
        """Whether a replica could lead for a while: its broker is only about to stop."""
        broker = self._brokers.get(broker_id)
        return broker is not None and not broker.fenced and has_directory(broker, partition)

    def change(
        self,
        topic: TopicImage,
        index: int,
        *,
        isr: Sequence[int] | None = None,
        replicas: Sequence[int] | None = None,
        adding: Sequence[int] | None = None,
        removing: Sequence[int] | None = None,
        directories: Sequence[UUID] | None = None,
        not_eligible: Sequence[int] = (),
        kind: ElectionKind = ElectionKind.ONLINE,
        leader_recovery_state: int | None = None,
        last_known_leader: tuple[int, ...] | None = None,
        new_epoch: bool = False,
    ) -> PartitionChangeRecord | None:
        """The record for what is to change and what follows; None if nothing changes.

        `not_eligible` are replicas that may not stay in the ELR. `new_epoch` begins one even if the leader stays.
        `last_known_leader` is one that may lead if nobody else is known to: none, where it has lost what it had.
        """
        old = topic.partitions[index]
        min_insync = self._rules_of(topic.name).min_insync if self._has_elr else NO_ELR
        wanted = _Wanted(old, isr, replicas, not_eligible, min_insync)
        if not self._has_elr:
            last_known_leader = ()
        known = old.last_known_elr if last_known_leader is None else last_known_leader
        placed = old if directories is None else replace(old, directories=tuple(directories))
        elected = self._elect(topic, placed, wanted, known, kind)
        wanted.take_leader(elected)
        if not self._has_elr and elected.leader != NO_LEADER:
            wanted.isr = tuple(member for member in wanted.isr if member == elected.leader or self._lives(old, member))
        recovery = old.leader_recovery_state if leader_recovery_state is None else leader_recovery_state
        if elected.unclean:
            recovery = RECOVERING
        changes: dict[str, Any] = {}
        if wanted.isr != old.isr:
            changes["isr"] = wanted.isr
        if elected.leader != old.leader or elected.unclean or new_epoch or not wanted.keeps_replicas_of(old):
            changes["leader"] = elected.leader
        if wanted.elr != old.elr:
            changes["eligible_leader_replicas"] = wanted.elr
        last_known = _last_known_leader(old, elected.leader) if last_known_leader is None else last_known_leader
        if last_known != old.last_known_elr:
            changes["last_known_elr"] = last_known
        if recovery != old.leader_recovery_state:
            changes["leader_recovery_state"] = recovery
        if replicas is not None or directories is not None:
            changes.update(self._placement_changes(old, wanted.replicas, directories))
        if adding is not None and tuple(adding) != old.adding:
            changes["adding_replicas"] = tuple(adding)
        if removing is not None and tuple(removing) != old.removing:
            changes["removing_replicas"] = tuple(removing)
        if not changes:
            return None
        return PartitionChangeRecord(partition_id=index, topic_id=topic.id, **changes)

    def _rules_of(self, topic: str) -> _Rules:
        rules = self._rules.get(topic)
        if rules is None:
            config = resolve_topic(self._context.image.topic_configs(topic), self._context.config)
            rules = _Rules(config.min_insync_replicas, config.unclean_leader_election_enable)
            self._rules[topic] = rules
        return rules

    def _elect(
        self,
        topic: TopicImage,
        old: PartitionImage,
        wanted: _Wanted,
        last_known: tuple[int, ...],
        kind: ElectionKind,
    ) -> _Elected:
        in_sync = wanted.isr or wanted.elr
        first = (wanted.replicas[0], old.leader) if kind is ElectionKind.PREFERRED else (old.leader,)
        for broker_id in (*first, *wanted.replicas):
            if broker_id in in_sync and self.may_lead(old, broker_id):
                return _Elected(broker_id)
        for broker_id in (old.leader, *wanted.replicas):
            if broker_id in wanted.isr and self._lives(old, broker_id):
                return _Elected(broker_id)
        may_return = not in_sync and len(last_known) == 1 and last_known[0] in wanted.replicas
        if may_return and self.may_lead(old, last_known[0]):
            return _Elected(last_known[0], unclean=True)
        if kind is ElectionKind.UNCLEAN or self._rules_of(topic.name).unclean:
            for broker_id in wanted.replicas:
                if self.may_lead(old, broker_id):
                    return _Elected(broker_id, unclean=True)
        return _Elected(NO_LEADER)

    def _placement_changes(
        self, old: PartitionImage, replicas: tuple[int, ...], directories: Sequence[UUID] | None
    ) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if replicas != old.replicas:
            changes["replicas"] = replicas
        if directories is None:
            known = dict(zip(old.replicas, old.directories, strict=False))
            directories = [
                known[broker_id] if broker_id in known else default_directory(self._brokers.get(broker_id))
                for broker_id in replicas
            ]
        if tuple(directories) != old.directories:
            changes["directories"] = tuple(directories)
        return changes


class _Wanted:
    """Replicas, ISR and ELR as they are to be."""

    __slots__ = ("elr", "isr", "min_insync", "replicas")

    def __init__(
        self,
        old: PartitionImage,
        isr: Sequence[int] | None,
        replicas: Sequence[int] | None,
        not_eligible: Sequence[int],
        min_insync: int,
    ) -> None:
        self.replicas = old.replicas if replicas is None else tuple(replicas)
        self.isr = old.isr if isr is None else tuple(isr)
        if replicas is not None:
            self.isr = tuple(broker_id for broker_id in self.isr if broker_id in self.replicas)
        self.min_insync = min(min_insync, len(self.replicas))
        if min_insync == NO_ELR and not self.isr:
            self.isr = tuple(
                broker_id for broker_id in old.isr if broker_id in self.replicas and broker_id not in not_eligible
            )
        self.elr = self._eligible(old, not_eligible)

    def _eligible(self, old: PartitionImage, not_eligible: Sequence[int]) -> tuple[int, ...]:
        if len(self.isr) >= self.min_insync:
            return ()
        return tuple(
            broker_id
            for broker_id in self.replicas
            if (broker_id in old.isr or broker_id in old.elr)
            and broker_id not in self.isr
            and broker_id not in not_eligible
        )

    def take_leader(self, elected: _Elected) -> None:
        """Who leads is in sync: alone, if it was not before."""
        leader = elected.leader
        if elected.unclean:
            self.isr, self.elr = (leader,), ()
        elif leader != NO_LEADER and leader not in self.isr:
            self.isr = (leader,)
            self.elr = tuple(broker_id for broker_id in self.elr if broker_id != leader)
            if len(self.isr) >= self.min_insync:
                self.elr = ()

    def keeps_replicas_of(self, old: PartitionImage) -> bool:
        """Whether no replica goes. One that goes is no follower any more: a new epoch shuts it out."""
        return self.replicas is old.replicas or all(broker_id in self.replicas for broker_id in old.replicas)


def _last_known_leader(old: PartitionImage, leader: int) -> tuple[int, ...]:
    if leader != NO_LEADER:
        return ()
    return old.last_known_elr if old.leader == NO_LEADER else (old.leader,)


def directory_of(partition: PartitionImage, broker_id: int) -> UUID:
    """Where a broker keeps its replica, as far as the metadata says."""
    at = partition.replicas.index(broker_id)
    return partition.directories[at] if at < len(partition.directories) else UNASSIGNED_DIRECTORY


def has_directory(broker: BrokerImage, partition: PartitionImage) -> bool:
    """Whether a broker still has the directory of its replica."""
    if not partition.directories or broker.id not in partition.replicas:
        return True
    directory = directory_of(partition, broker.id)
    return directory == UNASSIGNED_DIRECTORY or not broker.log_dirs or directory in broker.log_dirs
