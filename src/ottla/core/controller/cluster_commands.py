"""What brokers ask of the controller, and what it answers. What users ask is in `commands`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.core.controller.commands import Command, Outcome


class HeartbeatAnswer(NamedTuple):
    """How the controller sees a broker."""

    is_caught_up: bool
    """It has applied the metadata up to its own registration, at least."""
    is_fenced: bool
    should_shut_down: bool
    """It leads nothing any more, and may stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(Command[HeartbeatAnswer]):
    """A broker lives; ApiError STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED if it is not who it was."""

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class FenceBroker(Command[bool]):
    """A broker is gone: its session ended, or its process. False if that is no news, or it has registered anew."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Command[None]):
    """A broker is gone for good."""

    broker_id: int


class InSyncReplica(NamedTuple):
    """A replica that is to be in the ISR, and the life it was seen in."""

    broker_id: int
    broker_epoch: int = -1


class PartitionToAlter(NamedTuple):
    """The ISR that a leader asks for, and the state in which it asks."""

    topic_id: UUID
    index: int  # type: ignore[assignment]
    leader_epoch: int
    new_isr: Sequence[InSyncReplica]
    partition_epoch: int
    leader_recovery_state: int = 0


class AlteredPartition(NamedTuple):
    """What became of it. After NONE, the rest is the partition's state; the leader takes it over at once."""

    topic_id: UUID
    index: int  # type: ignore[assignment]
    outcome: Outcome
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class AlterPartitions(Command[list[AlteredPartition]]):
    """One answer per partition, in the order asked; an ApiError where the broker itself is refused."""

    broker_id: int
    broker_epoch: int
    partitions: Sequence[PartitionToAlter]


class ReplicaDirectory(NamedTuple):
    """Which of its directories a broker has chosen for a replica."""

    topic_id: UUID
    index: int  # type: ignore[assignment]
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirectories(Command[list[tuple[ReplicaDirectory, Outcome]]]):
    """One answer per replica, in the order asked."""

    broker_id: int
    broker_epoch: int
    replicas: Sequence[ReplicaDirectory]


class ReassignedPartition(NamedTuple):
    """A partition and the replicas it is to have; None cancels what is under way."""

    topic: str
    index: int  # type: ignore[assignment]
    replicas: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments(Command[list[tuple[str, int, Outcome]]]):
    """One answer per partition, in the order asked."""

    partitions: Sequence[ReassignedPartition]
    allow_replication_factor_change: bool = True


class OngoingReassignment(NamedTuple):
    """A partition whose replicas move."""

    topic: str
    index: int  # type: ignore[assignment]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListReassignments(Command[list[OngoingReassignment]]):
    """Those of the partitions named, or all."""

    partitions: Sequence[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class BalanceLeaders(Command[int]):
    """Give partitions back to their preferred leaders where a broker has too few of its own; answers how many moved."""

    imbalance_percentage_max: int
    moves_max: int
