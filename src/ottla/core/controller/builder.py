"""How records lead from one image to the next.

A builder copies a map the first time a record touches it and shares all others with the image before. So a batch of
records costs one copy of each map it touches, however many records it has, and replaying a whole log through one
builder costs one copy in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from ottla.core.controller.image import (
    NO_CONFIGS,
    BrokerImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    ResourceKey,
    TopicImage,
)
from ottla.core.controller.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import CorruptLogError


class ImageBuilder:
    """Takes records in their order and gives the image after them. Used once.

    A record that contradicts the metadata before it is a CorruptLogError: the log is damaged, or its writer was wrong.
    """

    __slots__ = (
        "_before",
        "_brokers",
        "_changed_brokers",
        "_changed_configs",
        "_changed_partitions",
        "_configs",
        "_copied_configs",
        "_created",
        "_deleted",
        "_features",
        "_growing",
        "_next_producer_id",
        "_topics",
        "_topics_by_id",
    )

    def __init__(self, before: MetadataImage) -> None:
        self._before = before
        self._brokers: dict[int, BrokerImage] | None = None
        self._topics: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[UUID, TopicImage] | None = None
        self._configs: dict[ResourceKey, Mapping[str, str]] | None = None
        self._features: dict[str, int] | None = None
        self._next_producer_id = before.next_producer_id
        self._growing: dict[UUID, list[PartitionImage]] = {}
        """Partitions of the topics touched so far; they become tuples in the end, once per topic."""
        self._created: dict[UUID, None] = {}
        self._deleted: dict[UUID, TopicImage] = {}
        self._changed_partitions: dict[UUID, set[int]] = {}
        self._copied_configs: set[ResourceKey] = set()
        self._changed_configs: dict[ResourceKey, None] = {}
        self._changed_brokers: set[int] = set()

    def apply(self, record: Record) -> None:
        """Take in the next record; what belongs to a transaction when that has ended (`transaction`)."""
        _APPLIERS[type(record)](self, record)

    def build(self, *, offset: int, epoch: int) -> tuple[MetadataImage, ImageDelta]:
        """The image after all records, the last of which stands at `offset`, and what they changed."""
        self._finish_topics()
        before = self._before
        image = MetadataImage(
            cluster_id=before.cluster_id,
            brokers=before.brokers if self._brokers is None else self._brokers,
            topics=before.topics if self._topics is None else self._topics,
            topics_by_id=before.topics_by_id if self._topics_by_id is None else self._topics_by_id,
            configs=before.configs if self._configs is None else self._configs,
            features=before.features if self._features is None else self._features,
            next_producer_id=self._next_producer_id,
            offset=offset,
            epoch=epoch,
        )
        return image, self._delta(image)

    def _delta(self, image: MetadataImage) -> ImageDelta:
        return ImageDelta(
            topics_created=tuple(image.topics_by_id[topic_id] for topic_id in self._created),
            topics_deleted=tuple(self._deleted.values()),
            partitions_changed={topic_id: frozenset(found) for topic_id, found in self._changed_partitions.items()},
            configs_changed=tuple(self._changed_configs),
            brokers_changed=frozenset(self._changed_brokers),
            features_changed=self._features is not None,
        )

    def _finish_topics(self) -> None:
        if not self._growing:
            return
        topics, topics_by_id = self._topic_maps()
        for topic_id, partitions in self._growing.items():
            topic = TopicImage(topics_by_id[topic_id].name, topic_id, tuple(partitions))
            topics[topic.name] = topics_by_id[topic_id] = topic

    def _topic_maps(self) -> tuple[dict[str, TopicImage], dict[UUID, TopicImage]]:
        if self._topics is None or self._topics_by_id is None:
            self._topics = dict(self._before.topics)
            self._topics_by_id = dict(self._before.topics_by_id)
        return self._topics, self._topics_by_id

    def _broker_map(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._before.brokers)
        return self._brokers

    def _config_map(self) -> dict[ResourceKey, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._before.configs)
        return self._configs

    def _partitions(self, topic_id: UUID) -> list[PartitionImage]:
        partitions = self._growing.get(topic_id)
        if partitions is None:
            by_id = self._before.topics_by_id if self._topics_by_id is None else self._topics_by_id
            topic = by_id.get(topic_id)
            if topic is None:
                raise CorruptLogError(f"a partition belongs to topic {topic_id}, which does not exist")
            partitions = self._growing[topic_id] = list(topic.partitions)
        if topic_id not in self._created:
            self._changed_partitions.setdefault(topic_id, set())
        return partitions

    def _topic(self, record: TopicRecord) -> None:
        topics, topics_by_id = self._topic_maps()
        if record.name in topics or record.topic_id in topics_by_id:
            raise CorruptLogError(f"topic {record.name} with id {record.topic_id} is created a second time")
        topics[record.name] = topics_by_id[record.topic_id] = TopicImage(record.name, record.topic_id)
        self._created[record.topic_id] = None
        self._growing[record.topic_id] = []

    def _partition(self, record: PartitionRecord) -> None:
        partitions = self._partitions(record.topic_id)
        index = record.partition_id
        if not 0 <= index <= len(partitions):
            raise CorruptLogError(f"partition {index} of topic {record.topic_id} comes before partition {index - 1}")
        isr = record.replicas if record.isr == record.replicas else record.isr
        partition = PartitionImage(
            replicas=record.replicas,
            isr=isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=record.directories,
            elr=record.eligible_leader_replicas,
            last_known_elr=record.last_known_elr,
            leader_recovery_state=record.leader_recovery_state,
            adding=record.adding_replicas,
            removing=record.removing_replicas,
        )
        partitions[index : index + 1] = [partition]
        self._mark_partition(record.topic_id, index)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions(record.topic_id)
        if not 0 <= record.partition_id < len(partitions):
            raise CorruptLogError(f"partition {record.partition_id} of topic {record.topic_id} does not exist")
        partitions[record.partition_id] = changed_partition(partitions[record.partition_id], record)
        self._mark_partition(record.topic_id, record.partition_id)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        topics = self._topic_maps()[0]
        if record.topic_name and record.topic_name not in topics:
            raise CorruptLogError(f"topic {record.topic_name} loses its eligible replicas, but does not exist")
        for topic in [topics[record.topic_name]] if record.topic_name else list(topics.values()):
            partitions = self._growing.get(topic.id, topic.partitions)
            for index, partition in enumerate(partitions):
                if partition.elr or partition.last_known_elr:
                    self._partition_change(
                        PartitionChangeRecord(
                            partition_id=index, topic_id=topic.id, eligible_leader_replicas=(), last_known_elr=()
                        )
                    )

    def _mark_partition(self, topic_id: UUID, index: int) -> None:
        if topic_id not in self._created:
            self._changed_partitions.setdefault(topic_id, set()).add(index)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topics, topics_by_id = self._topic_maps()
        topic = topics_by_id.pop(record.topic_id, None)
        if topic is None:
            raise CorruptLogError(f"topic {record.topic_id} is removed, but does not exist")
        del topics[topic.name]
        self._growing.pop(record.topic_id, None)
        self._changed_partitions.pop(record.topic_id, None)
        if record.topic_id in self._created:
            del self._created[record.topic_id]
        else:
            self._deleted[record.topic_id] = topic
        key = (ResourceType.TOPIC, topic.name)
        if key in (self._before.configs if self._configs is None else self._configs):
            del self._config_map()[key]
        self._changed_configs.pop(key, None)
        self._copied_configs.discard(key)

    def _config(self, record: ConfigRecord) -> None:
        key = (ResourceType(record.resource_type), record.resource_name)
        configs = self._config_map()
        values = configs.get(key, NO_CONFIGS)
        changed = dict(values) if key not in self._copied_configs or not isinstance(values, dict) else values
        if record.value is None:
            changed.pop(record.name, None)
        else:
            changed[record.name] = record.value
        self._copied_configs.add(key)
        self._changed_configs[key] = None
        if changed:
            configs[key] = changed
        else:
            configs.pop(key, None)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self._broker_map()[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=record.end_points,
            features=record.features,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=record.log_dirs,
        )
        self._changed_brokers.add(record.broker_id)

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        if self._broker_map().pop(record.broker_id, None) is None:
            raise CorruptLogError(f"broker {record.broker_id} is unregistered, but was not registered")
        self._changed_brokers.add(record.broker_id)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        brokers = self._broker_map()
        old = brokers.get(record.broker_id)
        if old is None or old.epoch != record.broker_epoch:
            raise CorruptLogError(f"broker {record.broker_id} is not registered with epoch {record.broker_epoch}")
        brokers[record.broker_id] = replace(
            old,
            fenced=old.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=(
                old.in_controlled_shutdown if record.in_controlled_shutdown is None else record.in_controlled_shutdown
            ),
            log_dirs=old.log_dirs if record.log_dirs is None else record.log_dirs,
        )
        self._changed_brokers.add(record.broker_id)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise CorruptLogError(f"producer ids go back to {record.next_producer_id}, they would be given out twice")
        self._next_producer_id = record.next_producer_id

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        if self._features is None:
            self._features = dict(self._before.features)
        # A level of 0 is kept: without a record the level may be another one.
        self._features[record.name] = record.feature_level

    def _nothing(self, record: NoOpRecord) -> None:
        pass


_APPLIERS: Final[Mapping[type[Any], Callable[[ImageBuilder, Any], None]]] = {
    TopicRecord: ImageBuilder._topic,
    PartitionRecord: ImageBuilder._partition,
    PartitionChangeRecord: ImageBuilder._partition_change,
    RemoveTopicRecord: ImageBuilder._remove_topic,
    ConfigRecord: ImageBuilder._config,
    RegisterBrokerRecord: ImageBuilder._register_broker,
    UnregisterBrokerRecord: ImageBuilder._unregister_broker,
    BrokerRegistrationChangeRecord: ImageBuilder._change_broker,
    ProducerIdsRecord: ImageBuilder._producer_ids,
    FeatureLevelRecord: ImageBuilder._feature_level,
    NoOpRecord: ImageBuilder._nothing,
    ClearElrRecord: ImageBuilder._clear_elr,
}


def changed_partition(old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """A partition after a change. Written out: a broker that fails changes thousands at once."""
    new_leader = record.leader is not None
    return PartitionImage(
        replicas=old.replicas if record.replicas is None else record.replicas,
        isr=old.isr if record.isr is None else record.isr,
        leader=old.leader if record.leader is None else record.leader,
        leader_epoch=old.leader_epoch + 1 if new_leader else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        directories=old.directories if record.directories is None else record.directories,
        elr=old.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
        last_known_elr=old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
        adding=old.adding if record.adding_replicas is None else record.adding_replicas,
        removing=old.removing if record.removing_replicas is None else record.removing_replicas,
        leader_recovery_state=(
            old.leader_recovery_state if record.leader_recovery_state is None else record.leader_recovery_state
        ),
    )


def apply(
    image: MetadataImage, records: Iterable[Record], *, offset: int, epoch: int
) -> tuple[MetadataImage, ImageDelta]:
    """The image after these records, the last of which stands at `offset`, and what they changed."""
    builder = ImageBuilder(image)
    for record in records:
        builder.apply(record)
    return builder.build(offset=offset, epoch=epoch)
