"""The cluster's metadata at one point of its log.

An image never changes, so whoever holds one may read it for as long as it likes; `builder` leads from one to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from ottla.core.controller.feature_levels import IMPLIED_LEVELS
from ottla.core.controller.records import BrokerEndpoint, SupportedFeature
from ottla.model.configs.definition import ResourceType
from ottla.model.ids import TopicPartition

ResourceKey: TypeAlias = tuple[ResourceType, str]
NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A registered broker."""

    id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[SupportedFeature, ...] = ()
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it may lead partitions and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """A partition: where its replicas are and who leads them."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[UUID, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; `partitions[i]` is partition i."""

    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """All metadata up to and including `offset`. Two images with the same content are equal."""

    cluster_id: str = ""
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    configs: Mapping[ResourceKey, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """Levels as they are recorded; `feature_level` knows also those that are not."""
    offset: int = -1
    epoch: int = 0

    def configs_of(self, resource: ResourceType, name: str) -> Mapping[str, str]:
        """What is set on a resource itself; empty where nothing is."""
        return self.configs.get((resource, name), NO_CONFIGS)

    def feature_level(self, name: str) -> int:
        """The level that the cluster uses of a feature; 0 is not at all."""
        level = self.features.get(name)
        return IMPLIED_LEVELS.get(name, 0) if level is None else level

    def has_partition(self, tp: TopicPartition) -> bool:
        topic = self.topics.get(tp.topic)
        return topic is not None and 0 <= tp.partition < len(topic.partitions)

    def topic_configs(self, name: str) -> Mapping[str, str]:
        return self.configs.get((ResourceType.TOPIC, name), NO_CONFIGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """What differs between an image and the one before it."""

    topics_created: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    """As they were before; a topic that came and went within the delta is in neither."""
    partitions_changed: Mapping[UUID, frozenset[int]] = field(default_factory=dict)
    """New and changed partitions of topics that were there before and still are, by topic id."""
    configs_changed: tuple[ResourceKey, ...] = ()
    """Resources whose configs changed, without those of deleted topics."""
    brokers_changed: frozenset[int] = frozenset()
    features_changed: bool = False
