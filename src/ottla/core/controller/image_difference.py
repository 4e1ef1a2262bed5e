"""What differs between two images that no records connect: a snapshot took the place of the log between them."""

from __future__ import annotations

from ottla.core.controller.image import ImageDelta, MetadataImage, TopicImage
from ottla.model.configs.definition import ResourceType


def difference(before: MetadataImage, after: MetadataImage) -> ImageDelta:
    """The delta that leads from one image to the other."""
    created = tuple(topic for topic_id, topic in after.topics_by_id.items() if topic_id not in before.topics_by_id)
    deleted = tuple(topic for topic_id, topic in before.topics_by_id.items() if topic_id not in after.topics_by_id)
    changed = {
        topic_id: indexes
        for topic_id, topic in after.topics_by_id.items()
        if (old := before.topics_by_id.get(topic_id)) is not None and (indexes := _changed(old, topic))
    }
    resources = dict.fromkeys([*before.configs, *after.configs])
    configs = tuple(
        (resource, name)
        for resource, name in resources
        if before.configs_of(resource, name) != after.configs_of(resource, name)
        and (resource is not ResourceType.TOPIC or name in after.topics)
    )
    brokers = dict.fromkeys([*before.brokers, *after.brokers])
    return ImageDelta(
        topics_created=created,
        topics_deleted=deleted,
        partitions_changed=changed,
        configs_changed=configs,
        brokers_changed=frozenset(
            broker_id for broker_id in brokers if before.brokers.get(broker_id) != after.brokers.get(broker_id)
        ),
        features_changed=before.features != after.features,
    )


def _changed(before: TopicImage, after: TopicImage) -> frozenset[int]:
    old = before.partitions
    return frozenset(
        index for index, partition in enumerate(after.partitions) if index >= len(old) or old[index] != partition
    )
