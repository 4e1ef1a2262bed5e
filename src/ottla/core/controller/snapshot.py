"""An image as records: what a snapshot of the metadata log holds."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.core.controller.image import BrokerImage, MetadataImage, TopicImage
from ottla.core.controller.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)


def snapshot_records(image: MetadataImage) -> Iterator[Record]:
    """Records that lead from an empty image to this one. Features come first: they say how to read the rest."""
    for name, level in sorted(image.features.items()):
        yield FeatureLevelRecord(name=name, feature_level=level)
    for _, broker in sorted(image.brokers.items()):
        yield _broker(broker)
    for topic in image.topics.values():
        yield from _topic(topic)
    for (resource, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=resource, resource_name=resource_name, name=name, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)


def _broker(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=broker.endpoints,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
    )


def _topic(topic: TopicImage) -> Iterator[Record]:
    yield TopicRecord(name=topic.name, topic_id=topic.id)
    for index, partition in enumerate(topic.partitions):
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic.id,
            replicas=partition.replicas,
            isr=partition.isr,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=partition.directories,
            removing_replicas=partition.removing,
            adding_replicas=partition.adding,
            eligible_leader_replicas=partition.elr,
            last_known_elr=partition.last_known_elr,
            leader_recovery_state=partition.leader_recovery_state,
        )
