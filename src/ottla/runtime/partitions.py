"""The partitions that this broker hosts, as the committed metadata says.

The table follows the metadata image: topics come, grow, change their config and go, and partitions change their role.
Handlers find partitions here, by the topic's name or by its id, and get the right Kafka error when there is none.

What an editor must keep true:
- `HostedTopic.led` holds exactly the partitions that this broker leads, so that the hot path finds them with one look
  and asks nothing else.
- Configs are taken before the partitions of the same change: who has left an ISR is eligible to lead by the minimum of
  in-sync replicas as it was by then, and a leader with the one from before would move its high watermark without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError, ErrorCode, StorageError
from ottla.model.ids import INTERNAL_TOPICS
from ottla.runtime.neighbours import Neighbours
from ottla.runtime.partition import Partition
from ottla.runtime.topic_counters import TopicCounters
from ottla.wire.fields import CurrentLeader

if TYPE_CHECKING:
    from ottla.core.controller.image import BrokerImage, ImageDelta, MetadataImage, PartitionImage, TopicImage
    from ottla.log.partition_log import PartitionLog
    from ottla.model.configs.resolve import TopicConfig

NO_LEADER = CurrentLeader(-1, -1)


class HostedTopic:
    """A topic with the partitions of it that are here; `partitions[i]` is None where partition i is elsewhere.

    `led[i]` is the same for those that this broker leads.
    """

    __slots__ = ("config", "counters", "id", "is_internal", "is_rewritten", "leaders", "led", "name", "partitions")

    def __init__(self, name: str, topic_id: UUID, config: TopicConfig) -> None:
        self.name = name
        self.id = topic_id
        self.is_internal = name in INTERNAL_TOPICS
        self.counters = TopicCounters()
        self.partitions: list[Partition | None] = []
        self.led: list[Partition | None] = []
        self.leaders: list[CurrentLeader] = []
        """Who leads each partition, here or elsewhere, and in which epoch."""
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


RolesListener = Callable[[list[Partition]], None]


class PartitionTable:
    """Every hosted partition."""

    __slots__ = (
        "_by_id",
        "_by_name",
        "_node_id",
        "_on_directory_failed",
        "_on_roles_changed",
        "_open_log",
        "neighbours",
    )

    def __init__(
        self,
        node_id: int,
        open_log: Callable[[Partition, TopicConfig], PartitionLog],
        on_directory_failed: Callable[[StorageError], bool],
        neighbours: Neighbours,
    ) -> None:
        self._node_id = node_id
        self._by_name: dict[str, HostedTopic] = {}
        self._by_id: dict[int, HostedTopic] = {}
        """By the number that an id is: to hash that costs no Python."""
        self._open_log = open_log
        self._on_directory_failed = on_directory_failed
        self._on_roles_changed: list[RolesListener] = []
        self.neighbours = neighbours

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
        topic = self._by_name.get(key) if isinstance(key, str) else self._by_id.get(key.int)
        if topic is not None and 0 <= index < len(topic.led):
            partition = topic.led[index]
            if partition is not None:
                return topic, partition
        topic = self.topic(key)
        return topic, self.leader_of(topic, index)

    def leading_or_none(self, key: str | UUID, index: int) -> Partition | None:
        """The partition, if it is led here; None for every reason why not."""
        topic = self.find(key)
        return topic.led[index] if topic is not None and 0 <= index < len(topic.led) else None

    def hosted(self, key: str | UUID, index: int) -> Partition:
        """The partition, whatever its role here."""
        topic = self.topic(key)
        partition = topic.partitions[index] if 0 <= index < len(topic.partitions) else None
        return self.leader_of(topic, index) if partition is None else partition

    def followed(self) -> list[Partition]:
        """Every partition that has its leader on another broker, or none."""
        return [partition for partition in self if not partition.leads]

    def led(self) -> list[Partition]:
        """Every partition that this broker leads."""
        return [partition for partition in self if partition.leads]

    def find(self, key: str | UUID) -> HostedTopic | None:
        """The topic by its name or by its id, if there is one."""
        return self._by_name.get(key) if isinstance(key, str) else self._by_id.get(key.int)

    def leader(self, key: str | UUID, index: int) -> Partition:
        """The partition, if this broker leads it."""
        return self.leading(key, index)[1]

    def leader_of(self, topic: HostedTopic, index: int) -> Partition:
        if not 0 <= index < len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has {len(topic.partitions)} partitions"
            )
        partition = topic.led[index]
        if partition is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {topic.name}-{index} has its leader elsewhere")
        return partition

    def current_leader(self, key: str | UUID, index: int) -> CurrentLeader | None:
        """Who leads a partition by the newest metadata here; None if nobody does, or if that is not known."""
        topic = self.find(key)
        leader = topic.leaders[index] if topic is not None and 0 <= index < len(topic.leaders) else NO_LEADER
        return None if leader.leader_id < 0 else leader

    def directory_failed(self, error: StorageError) -> None:
        """A log directory went offline: its logs are let go, so that each later touch answers KAFKA_STORAGE_ERROR."""
        if not self._on_directory_failed(error):
            return  # It was offline before, and its logs were let go then.
        for partition in self:
            log = partition.log_or_none
            if log is not None and log.directory.startswith(error.directory.rstrip("/") + "/"):
                partition.log_or_none = None
                partition.changed()

    def on_roles_changed(self, listener: RolesListener) -> None:
        """Call `listener` with the partitions whose leader or leader epoch changed: new ones and dropped ones too."""
        self._on_roles_changed.append(listener)

    def follow(
        self,
        image: MetadataImage,
        delta: ImageDelta,
        config_of: Callable[[str], TopicConfig],
        remove: Callable[[list[Partition]], None],
    ) -> None:
        """Take in what has changed; `remove` is told what is hosted here no longer, before anything takes its place."""
        if delta.brokers_changed:
            self.brokers_changed(image.brokers)
        for topic in delta.topics_deleted:
            remove(self.drop(topic.id))
        for resource, name in delta.configs_changed:
            if resource is ResourceType.TOPIC and name in image.topics:
                self.set_config(name, config_of(name))
        for topic in delta.topics_created:
            self.host(topic, config_of(topic.name))
        for topic_id in delta.partitions_changed:
            changed = image.topics_by_id[topic_id]
            remove(self.host(changed, config_of(changed.name)))

    def host(self, image: TopicImage, config: TopicConfig) -> list[Partition]:
        """Take in a new topic, or a known one with more partitions, other leaders or other replicas.

        Returns the partitions that are hosted here no longer, to be removed from disk.
        """
        topic = self._by_name.get(image.name)
        if topic is None:
            topic = HostedTopic(image.name, image.id, config)
            self._by_name[image.name] = self._by_id[image.id.int] = topic
        changed: list[Partition] = []
        removed: list[Partition] = []
        for index, state in enumerate(image.partitions):
            if index == len(topic.partitions):
                topic.partitions.append(None)
                topic.led.append(None)
                topic.leaders.append(NO_LEADER)
            if state.leader_epoch >= topic.leaders[index].leader_epoch:
                topic.leaders[index] = CurrentLeader(state.leader, state.leader_epoch)
            current = topic.partitions[index]
            if self._node_id not in state.replicas:
                topic.partitions[index] = topic.led[index] = None
                if current is not None:
                    current.let_go()
                    removed.append(current)
                continue
            if current is None:
                current = topic.partitions[index] = self._new_partition(topic, index)
            if self._take_role(topic, current, state):
                changed.append(current)
        self._tell(changed + removed)
        return removed

    def _take_role(self, topic: HostedTopic, partition: Partition, state: PartitionImage) -> bool:
        """Make a partition what the metadata says it is; whether that is another role, or another leader."""
        before = partition.leader_id, partition.leader_epoch
        if state.leader == self._node_id:
            topic.led[partition.index] = partition
            partition.become_leader(state)
        else:
            topic.led[partition.index] = None
            partition.become_follower(state)
        return before != (partition.leader_id, partition.leader_epoch)

    def _tell(self, changed: list[Partition]) -> None:
        if changed:
            for listener in self._on_roles_changed:
                listener(changed)

    def brokers_changed(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Brokers came, went or registered anew: who is not eligible any more is waited for no longer."""
        self.neighbours.brokers = brokers
        for partition in self:
            if partition.replication is not None and partition.replication.has_outsiders:
                partition.settle()
                self.neighbours.on_isr_due(partition)

    def drop(self, topic_id: UUID) -> list[Partition]:
        """Let go of a deleted topic; whoever waits on it learns at once. Returns what is to be removed from disk."""
        topic = self._by_id.pop(topic_id.int, None)
        if topic is None:
            return []
        del self._by_name[topic.name]
        partitions = [partition for partition in topic.partitions if partition is not None]
        topic.partitions.clear()
        topic.led.clear()
        topic.leaders.clear()
        for partition in partitions:
            partition.let_go()
        self._tell(partitions)
        return partitions

    def set_config(self, name: str, config: TopicConfig) -> None:
        topic = self._by_name.get(name)
        if topic is not None:
            topic.set_config(config)

    def _new_partition(self, topic: HostedTopic, index: int) -> Partition:
        partition = Partition(
            topic.name,
            index,
            topic.id,
            topic.counters,
            lambda partition: self._open_log(partition, topic.config),
            self.neighbours,
        )
        partition.set_config(topic.config)
        return partition


def _unknown_topic(key: str | UUID) -> ApiError:
    if isinstance(key, str):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {key}")
    return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {key}")
