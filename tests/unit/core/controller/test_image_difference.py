"""Whoever follows the metadata by deltas arrives at the same picture when a snapshot takes the place of the log."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ottla.core.controller.image import BrokerImage, ImageDelta, MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.image_difference import difference
from ottla.model.configs.definition import ResourceType

PARTITION = PartitionImage(replicas=(1, 2), isr=(1, 2), leader=1)


def topic(name: str, number: int, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name, UUID(int=number), partitions or (PARTITION,))


def image(*topics: TopicImage, configs: dict[str, dict[str, str]] | None = None, brokers: tuple[int, ...] = (1,),
          features: dict[str, int] | None = None) -> MetadataImage:  # fmt: skip
    return MetadataImage(
        topics={item.name: item for item in topics},
        topics_by_id={item.id: item for item in topics},
        configs={(ResourceType.TOPIC, name): values for name, values in (configs or {}).items()},
        brokers={
            number: BrokerImage(id=number, epoch=0, incarnation_id=UUID(int=number), endpoints=()) for number in brokers
        },
        features=features or {},
    )


def test_nothing_differs() -> None:
    same = image(topic("a", 1), configs={"a": {"retention.ms": "1"}}, features={"x": 1})
    assert (
        difference(same, image(topic("a", 1), configs={"a": {"retention.ms": "1"}}, features={"x": 1})) == ImageDelta()
    )


def test_topics_come_and_go_by_their_ids() -> None:
    """A topic that was deleted and made again under its name is two topics."""
    old, new, kept = topic("a", 1), topic("a", 2), topic("b", 3)
    delta = difference(image(old, kept), image(new, kept))
    assert (delta.topics_created, delta.topics_deleted) == ((new,), (old,))
    assert delta.partitions_changed == {}


def test_partitions_that_changed_or_are_new_are_named() -> None:
    moved = replace(PARTITION, leader=2, leader_epoch=1)
    before = image(topic("a", 1, PARTITION, PARTITION))
    after = image(topic("a", 1, PARTITION, moved, PARTITION))
    assert difference(before, after).partitions_changed == {UUID(int=1): frozenset({1, 2})}


def test_configs_that_differ_are_named_but_not_those_of_topics_that_are_gone() -> None:
    before = image(topic("a", 1), topic("b", 2), configs={"a": {"retention.ms": "1"}, "b": {"retention.ms": "1"}})
    after = image(topic("a", 1), topic("c", 3), configs={"c": {"retention.ms": "2"}})
    delta = difference(before, after)
    assert delta.configs_changed == ((ResourceType.TOPIC, "a"), (ResourceType.TOPIC, "c"))


def test_brokers_and_features() -> None:
    delta = difference(image(brokers=(1, 2), features={"x": 1}), image(brokers=(2, 3), features={"x": 2}))
    assert delta.brokers_changed == {1, 3}
    assert delta.features_changed
