"""The partitions that this broker hosts, as the committed metadata says.

The table follows the metadata image: topics come, grow, change their config and go. Handlers find partitions here, by
the topic's name or by its id, and get the right Kafka error when there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.model.errors import ApiError, ErrorCode, StorageError
from ottla.model.ids import INTERNAL_TOPICS
from ottla.runtime.partition import Partition, TopicCounters

if TYPE_CHECKING:
    from ottla.core.controller.image import TopicImage
    from ottla.log.partition_log import PartitionLog
    from ottla.model.configs.resolve import TopicConfig


class HostedTopic:
    """A topic with the partitions of it that are here; `partitions[i]` is None where partition i is elsewhere."""

    __slots__ = ("config", "counters", "id", "is_internal", "is_rewritten", "name", "partitions")

    def __init__(self, name: str, topic_id: UUID, config: TopicConfig) -> None:
        self.name = name
        self.id = topic_id
        self.is_internal = name in INTERNAL_TOPICS
        self.counters = TopicCounters()
        self.partitions: list[Partition | None] = []
        self.set_config(config)

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        self.is_rewritten = (
            config.record_validation_full or config.cleanup_compact or config.compression_type != "producer"
        )
        """Whether records must be looked into before they are written, which happens in the record worker."""
        for partition in self.partitions:
            if partition is not None:
                partition.set_config(config)


class PartitionTable:
    """Every hosted partition."""

    __slots__ = ("_by_id", "_by_name", "_node_id", "_on_directory_failed", "_open_log")

    def __init__(
        self,
        node_id: int,
        open_log: Callable[[Partition, TopicConfig], PartitionLog],
        on_directory_failed: Callable[[StorageError], bool],
    ) -> None:
        self._node_id = node_id
        self._by_name: dict[str, HostedTopic] = {}
        self._by_id: dict[UUID, HostedTopic] = {}
        self._open_log = open_log
        self._on_directory_failed = on_directory_failed

    def __iter__(self) -> Iterator[Partition]:
        for topic in self._by_name.values():
            for partition in topic.partitions:
                if partition is not None:
                    yield partition

    @property
    def topics(self) -> list[HostedTopic]:
        return list(self._by_name.values())

    def topic(self, key: str | UUID) -> HostedTopic:
        """The topic by its name or by its id."""
        found = self.find(key)
        if found is None:
            raise _unknown_topic(key)
        return found

    def leading(self, key: str | UUID, index: int) -> tuple[HostedTopic, Partition]:
        """The topic and its partition, if this broker leads it; for the hot path."""
        topic = self._by_name.get(key) or self._by_id.get(key)  # type: ignore[arg-type]
        if topic is not None and 0 <= index < len(topic.partitions):
            partition = topic.partitions[index]
            if partition is not None:
                return topic, partition
        topic = self.topic(key)
        return topic, self.leader_of(topic, index)

    def leading_or_none(self, key: str | UUID, index: int) -> Partition | None:
        """The partition, if it is led here; None for every reason why not."""
        topic = self.find(key)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def find(self, key: str | UUID) -> HostedTopic | None:
        """The topic by its name or by its id, if there is one."""
        return self._by_name.get(key) or self._by_id.get(key)  # type: ignore[arg-type]

    def leader(self, key: str | UUID, index: int) -> Partition:
        """The partition, if this broker leads it."""
        return self.leading(key, index)[1]

    def leader_of(self, topic: HostedTopic, index: int) -> Partition:
        if not 0 <= index < len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has {len(topic.partitions)} partitions"
            )
        partition = topic.partitions[index]
        if partition is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {topic.name}-{index} has its leader elsewhere")
        return partition

    def directory_failed(self, error: StorageError) -> None:
        """A log directory went offline: its logs are let go, so that each later touch answers KAFKA_STORAGE_ERROR."""
        if not self._on_directory_failed(error):
            return  # It was offline before, and its logs were let go then.
        for partition in self:
            log = partition.log_or_none
            if log is not None and log.directory.startswith(error.directory.rstrip("/") + "/"):
                partition.log_or_none = None
                partition.changed()

    def host(self, image: TopicImage, config: TopicConfig) -> None:
        """Take in a new topic, or a known one with more partitions or other leaders."""
        topic = self._by_name.get(image.name)
        if topic is None:
            topic = HostedTopic(image.name, image.id, config)
            self._by_name[image.name] = self._by_id[image.id] = topic
        for index, state in enumerate(image.partitions):
            if index == len(topic.partitions):
                topic.partitions.append(None)
            current = topic.partitions[index]
            if self._node_id not in state.replicas:
                topic.partitions[index] = None
            elif current is None:
                topic.partitions[index] = self._new_partition(topic, index, state.leader_epoch)
            else:
                current.leader_epoch = state.leader_epoch

    def drop(self, topic_id: UUID) -> list[Partition]:
        """Let go of a deleted topic; whoever waits on it learns at once. Returns what is to be removed from disk."""
        topic = self._by_id.pop(topic_id, None)
        if topic is None:
            return []
        del self._by_name[topic.name]
        partitions = [partition for partition in topic.partitions if partition is not None]
        topic.partitions.clear()
        for partition in partitions:
            partition.gone = True
            watchers, partition.watchers = partition.watchers, None
            for watcher in watchers or ():
                watcher.partition_gone()
        return partitions

    def set_config(self, name: str, config: TopicConfig) -> None:
        topic = self._by_name.get(name)
        if topic is not None:
            topic.set_config(config)

    def _new_partition(self, topic: HostedTopic, index: int, leader_epoch: int) -> Partition:
        return Partition(
            topic.name,
            index,
            topic.id,
            leader_epoch,
            topic.counters,
            lambda partition: self._open_log(partition, topic.config),
        )


def _unknown_topic(key: str | UUID) -> ApiError:
    if isinstance(key, str):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {key}")
    return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {key}")
