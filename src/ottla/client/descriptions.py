"""What the admin client hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.client.metadata import Broker
from ottla.client.settings import Address
from ottla.model.configs.definition import ConfigSource
from ottla.model.ids import ZERO_UUID, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config key of a topic or broker."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was made, or would be."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster at a glance."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]
    features: dict[str, int]
    """Finalized features and their levels."""
    fenced: tuple[Broker, ...] = ()
    """Brokers that are registered and do not serve: stopped, dead, or not ready yet. None where the cluster is too old
    to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """How much disk one replica takes."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """One log directory of one broker. Bytes are -1 where the broker does not say."""

    node_id: int
    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaSize, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A voter or observer of the metadata quorum."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    directory_id: UUID = ZERO_UUID
    """Of its metadata log; all zero where the cluster does not tell."""


class VoterEndpoint(NamedTuple):
    """One listener of a voter."""

    listener: str
    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The metadata quorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: dict[int, tuple[VoterEndpoint, ...]] = field(default_factory=dict)
    """Where each voter listens, by its id, as far as the cluster tells."""
