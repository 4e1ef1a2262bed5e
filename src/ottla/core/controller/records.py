"""The facts that the metadata log is made of. Names and fields are those of Kafka's metadata records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

NO_LEADER: Final = -1
UNASSIGNED_DIRECTORY: Final = UUID(int=0)
"""The directory of a replica that its broker has yet to choose."""
RESERVED_DIRECTORIES: Final = 100
"""Smaller ids name no directory, but say why there is none."""


class BrokerEndpoint(NamedTuple):
    """An address of a broker."""

    name: str
    host: str
    port: int
    security_protocol: int


class SupportedFeature(NamedTuple):
    """The levels of a feature that a broker can work with."""

    name: str
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A broker is there, under this epoch; replaces what was known of it."""

    broker_id: int
    incarnation_id: UUID
    broker_epoch: int
    end_points: tuple[BrokerEndpoint, ...]
    features: tuple[SupportedFeature, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """A broker is gone for good."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """A broker is fenced or not, stops or not; None leaves a field as it is."""

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic is there; its partitions follow."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A partition in full."""

    partition_id: int
    topic_id: UUID
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[UUID, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """What changes in a partition; None leaves a field as it is. Naming a leader begins a new leader epoch."""

    partition_id: int
    topic_id: UUID
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    directories: tuple[UUID, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic is gone, with its partitions and configs."""

    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A config of a resource has this value, or with None no value of its own any more."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` are given out."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """The cluster uses this level of a feature; 0 means not at all."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """Nothing happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord:
    """No replica of a topic is eligible any more that is not in sync; of all topics if none is named."""

    topic_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord:
    """The records from here on take effect together, when the transaction ends, in whichever batches they are."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    """What came since the transaction began takes effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord:
    """What came since the transaction began never takes effect."""

    reason: str | None = None


Record: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | NoOpRecord
    | ClearElrRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)
