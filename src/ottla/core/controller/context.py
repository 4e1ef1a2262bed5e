"""What decisions are made on: the metadata as it will be once all earlier records are committed, and the config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ottla.core.controller.image import MetadataImage
from ottla.core.controller.validation import CollisionIndex
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import BrokerConfig


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to each decision. `next_offset` is where the first of its records will stand."""

    image: MetadataImage
    config: BrokerConfig
    collisions: CollisionIndex
    new_uuid: Callable[[], UUID]
    next_offset: int


def with_dynamic_configs(config: BrokerConfig, image: MetadataImage) -> BrokerConfig:
    """A broker's config with what the metadata says of it: its own dynamic configs over those of all brokers."""
    return config.with_dynamic(
        image.configs_of(ResourceType.BROKER, str(config.node_id)), image.configs_of(ResourceType.BROKER, "")
    )
