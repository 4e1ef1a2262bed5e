"""The controller: a command goes in, records and an answer come out.

Theory of operation. `decide` looks at the metadata as it will be once everything decided so far is committed, and
applies its own records to that picture at once. So a second command sees what the first one did although the disk has
not confirmed it yet, and many commands can be on their way to the log at the same time. Records must therefore reach
the log in the order of the decisions, and when one cannot be written the controller is of no use any more: its picture
is ahead of the log. The node stops, or a new controller is built from the log.

An answer may tell what an uncommitted record says ("already exists"), so it leaves only when everything decided up to
then is committed, even where it brought no records itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from ottla.core.controller.balance import balance_leaders
from ottla.core.controller.brokers import allocate_producer_ids
from ottla.core.controller.builder import apply
from ottla.core.controller.cluster_commands import (
    AlterPartitions,
    AlterReassignments,
    AssignReplicasToDirectories,
    BalanceLeaders,
    BrokerHeartbeat,
    FenceBroker,
    ListReassignments,
    UnregisterBroker,
)
from ottla.core.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AnswerT,
    Command,
    CreatePartitions,
    CreateTopics,
    Decision,
    DeleteTopics,
    ElectLeaders,
    IncrementalAlterConfigs,
    RegisterBroker,
    UpdateFeatures,
)
from ottla.core.controller.configs import alter_configs, incremental_alter_configs
from ottla.core.controller.context import Context, with_dynamic_configs
from ottla.core.controller.features import update_features
from ottla.core.controller.heartbeats import broker_heartbeat, fence_broker
from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.controller.in_sync import alter_partitions, assign_replicas_to_directories
from ottla.core.controller.partitions import create_partitions, elect_leaders
from ottla.core.controller.reassignments import alter_reassignments, list_reassignments
from ottla.core.controller.records import Record
from ottla.core.controller.registrations import register_broker
from ottla.core.controller.topics import create_topics, delete_topics
from ottla.core.controller.unregistration import unregister_broker
from ottla.core.controller.validation import CollisionIndex
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import BrokerConfig

_DECISIONS: Final[Mapping[type[Command[Any]], Callable[[Context, Any], Decision[Any]]]] = {
    CreateTopics: create_topics,
    DeleteTopics: delete_topics,
    CreatePartitions: create_partitions,
    IncrementalAlterConfigs: incremental_alter_configs,
    AlterConfigs: alter_configs,
    AllocateProducerIds: allocate_producer_ids,
    UpdateFeatures: update_features,
    ElectLeaders: elect_leaders,
    RegisterBroker: register_broker,
    BrokerHeartbeat: broker_heartbeat,
    FenceBroker: fence_broker,
    AlterPartitions: alter_partitions,
    AssignReplicasToDirectories: assign_replicas_to_directories,
    AlterReassignments: alter_reassignments,
    ListReassignments: list_reassignments,
    BalanceLeaders: balance_leaders,
    UnregisterBroker: unregister_broker,
}


class Controller:
    """Decides on commands in their order. `image` is the metadata with everything decided so far."""

    __slots__ = ("_collisions", "_config", "_new_uuid", "_static_config", "image")

    def __init__(self, image: MetadataImage, config: BrokerConfig, new_uuid: Callable[[], UUID]) -> None:
        self.image = image
        self._static_config = config
        self._config = with_dynamic_configs(config, image)
        self._new_uuid = new_uuid
        self._collisions = CollisionIndex(image.topics)

    def decide(self, command: Command[AnswerT], next_offset: int) -> Decision[AnswerT]:
        """What to write and what to answer; the first record will stand at `next_offset`.

        Commands that are answered as a whole raise an ApiError, and then nothing has changed.
        """
        context = Context(self.image, self._config, self._collisions, self._new_uuid, next_offset)
        decision: Decision[AnswerT] = _DECISIONS[type(command)](context, command)
        if decision.records:
            self._apply(decision.records, next_offset)
        return decision

    def _apply(self, records: tuple[Record, ...], next_offset: int) -> None:
        offset = next_offset + len(records) - 1
        self.image, delta = apply(self.image, records, offset=offset, epoch=self.image.epoch)
        self._follow(delta)

    def _follow(self, delta: ImageDelta) -> None:
        for topic in delta.topics_deleted:
            self._collisions.discard(topic.name)
        for topic in delta.topics_created:
            self._collisions.add(topic.name)
        if any(resource is ResourceType.BROKER for resource, _ in delta.configs_changed):
            self._config = with_dynamic_configs(self._static_config, self.image)
