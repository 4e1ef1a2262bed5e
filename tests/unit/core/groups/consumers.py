"""Consumers of the new protocol, and a coordinator with topics for them, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.core.controller.image import ImageDelta, MetadataImage, PartitionImage, TopicImage
from ottla.core.groups.consumer_commands import ConsumerGroupHeartbeat, MemberHeard
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.groups.coordinator import Coordinator

REBALANCE_MS = 60_000


class Topics(Coordinator):
    """A coordinator that knows topics."""

    def __init__(self, configs: Mapping[str, str] | None = None, **counts: int) -> None:
        super().__init__(configs)
        self.ids = 100
        self.set_topics(**counts)

    def set_topics(self, **counts: int) -> None:
        """From now on these are the topics; those that were there before keep their ids."""
        before = self.image.topics
        topics: dict[str, TopicImage] = {}
        for name, count in counts.items():
            old = before.get(name)
            if old is None:
                self.ids += 1
            partition = PartitionImage(replicas=(0,), isr=(0,), leader=0)
            topics[name] = TopicImage(name, UUID(int=self.ids) if old is None else old.id, (partition,) * count)
        by_id = {topic.id: topic for topic in topics.values()}
        offset = self.image.offset + 1
        self.image = replace(self.image, topics=topics, topics_by_id=by_id, offset=offset)
        delta = ImageDelta(
            topics_created=tuple(topic for name, topic in topics.items() if name not in before),
            topics_deleted=tuple(topic for name, topic in before.items() if name not in topics),
            partitions_changed={
                topic.id: frozenset(range(len(before[name].partitions), len(topic.partitions)))
                for name, topic in topics.items()
                if name in before and before[name].partitions != topic.partitions
            },
        )
        self._perform(self.shard.metadata_changed(delta))
        self.pass_ms(0)

    def set_group_configs(self, **configs: str) -> None:
        """Configs of group g, with underscores in their names."""
        key = (ResourceType.GROUP, "g")
        texts = {name.replace("_", "."): text for name, text in configs.items()}
        self.image = replace(self.image, configs={key: texts})
        self._perform(self.shard.metadata_changed(ImageDelta(configs_changed=(key,))))

    @property
    def g(self) -> ConsumerGroup:
        group = self.shard.state.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group

    def consumer(self, name: str, *topics: str, **fields: Any) -> Consumer:
        return Consumer(self, name, topics, **fields)

    def joined_consumers(self, count: int, *topics: str) -> list[Consumer]:
        """This many consumers in a stable group."""
        consumers = [self.consumer(f"m{number}", *topics) for number in range(count)]
        for consumer in consumers:
            consumer.join()
        settle(self, consumers)
        return consumers


class Consumer:
    """A client. `owned` is what it works on; it follows each assignment at once and says so with its next heartbeat."""

    def __init__(self, coordinator: Topics, name: str, topics: tuple[str, ...], **fields: Any) -> None:
        self.coordinator = coordinator
        self.member_id = name
        self.topics = topics
        self.fields = fields
        self.epoch = 0
        self.owned: set[tuple[UUID, int]] = set()
        self.interval_ms = 0
        self.says_owned = False
        """What it owns has changed since the last heartbeat."""

    def command(self, **fields: Any) -> ConsumerGroupHeartbeat:
        given = {
            "group_id": "g",
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.fields.get("instance_id"),
            "client_id": "c",
            "client_host": "/127.0.0.1",
            **fields,
        }
        return ConsumerGroupHeartbeat(**given)

    def partitions(self) -> tuple[tuple[UUID, tuple[int, ...]], ...]:
        topics = {topic_id for topic_id, _ in self.owned}
        return tuple((topic, tuple(n for topic_id, n in self.owned if topic_id == topic)) for topic in topics)

    def join(self, **fields: Any) -> MemberHeard:
        """Join, or join again without partitions."""
        self.epoch = 0
        self.owned.clear()
        return self.send(**{**self.whole(), **fields})

    def whole(self) -> dict[str, Any]:
        """A request that says everything."""
        return {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self.topics,
            "topic_partitions": self.partitions(),
            **self.fields,
        }

    def beat(self, **fields: Any) -> MemberHeard:
        if self.says_owned:
            fields = {"topic_partitions": self.partitions(), **fields}
        return self.send(**fields)

    def send(self, **fields: Any) -> MemberHeard:
        answer = self.coordinator.ask(self.command(**fields))
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, MemberHeard)
        self.take(answer)
        return answer

    def take(self, answer: MemberHeard) -> None:
        self.says_owned = False
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            now = {(topic_id, number) for topic_id, numbers in answer.assignment for number in numbers}
            self.says_owned = now != self.owned
            self.owned = now

    def leave(self, epoch: int = -1) -> MemberHeard:
        answer = self.coordinator.ask(self.command(member_epoch=epoch))
        if isinstance(answer, ApiError):
            raise answer
        self.owned.clear()
        assert isinstance(answer, MemberHeard)
        return answer

    def code(self, **fields: Any) -> ErrorCode:
        """How a heartbeat goes whose answer the client never sees."""
        return self.coordinator.code(self.command(**fields))


def settle(coordinator: Topics, consumers: list[Consumer], rounds: int = 12) -> None:
    """Everybody sends heartbeats until nothing moves any more."""
    for _ in range(rounds):
        coordinator.pass_ms(1000)
        for consumer in consumers:
            consumer.beat()
        if coordinator.g.state_name == "Stable" and not any(consumer.says_owned for consumer in consumers):
            return
    raise AssertionError(f"not stable: {coordinator.g.state_name}")


def image_of(**counts: int) -> MetadataImage:
    return Topics(None, **counts).image
