"""Metrics of topics and partitions, from the metadata image and from the logs that are open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.model.errors import ApiError
from ottla.model.ids import TopicPartition
from ottla.server.metric_text import LINES_PER_PIECE, Family, escaped, joined
from ottla.server.readable_end import readable_end

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.core.controller.image import PartitionImage
    from ottla.log.partition_log import PartitionLog
    from ottla.runtime.partition import Partition

FromImage: TypeAlias = "Callable[[PartitionImage, int], int | None]"
"""Takes a partition and how many replicas must be in sync; None where there is no sample."""
FromLog: TypeAlias = "Callable[[Partition, PartitionLog], int]"


def _leader(partition: PartitionImage, _min_isr: int) -> int | None:
    return partition.leader if partition.leader >= 0 else None


def _under_replicated(partition: PartitionImage, _min_isr: int) -> int:
    return len(partition.isr) < len(partition.replicas)


TOPIC_PARTITIONS: Final = Family("kafka_topic_partitions", "gauge", "Partitions of this topic.")

FROM_IMAGE: Final[tuple[tuple[Family, FromImage], ...]] = (
    (Family("kafka_topic_partition_leader", "gauge", "The broker that leads this partition."), _leader),
    (
        Family("kafka_topic_partition_replicas", "gauge", "Replicas of this partition."),
        lambda partition, _min_isr: len(partition.replicas),
    ),
    (
        Family("kafka_topic_partition_in_sync_replica", "gauge", "Replicas of this partition that are in sync."),
        lambda partition, _min_isr: len(partition.isr),
    ),
    (
        Family("kafka_topic_partition_leader_is_preferred", "gauge", "1 if the first replica leads this partition."),
        lambda partition, _min_isr: partition.leader == partition.replicas[0],
    ),
    (
        Family("kafka_topic_partition_under_replicated_partition", "gauge", "1 if a replica is not in sync."),
        _under_replicated,
    ),
    (Family("kafka_cluster_partition_underreplicated", "gauge", "1 if a replica is not in sync."), _under_replicated),
    (
        Family("kafka_cluster_partition_underminisr", "gauge", "1 if too few replicas are in sync for acks=all."),
        lambda partition, min_isr: len(partition.isr) < min(min_isr, len(partition.replicas)),
    ),
    (
        Family("kafka_cluster_partition_atminisr", "gauge", "1 if no more replicas are in sync than acks=all needs."),
        lambda partition, min_isr: len(partition.isr) == min(min_isr, len(partition.replicas)),
    ),
)

CURRENT_OFFSET: Final = Family(
    "kafka_topic_partition_current_offset", "gauge", "The offset that the next visible record gets."
)
"""Of logs that nobody has touched, too: with it lag can be computed for groups whose coordinator has no replica."""
FROM_LOG: Final[tuple[tuple[Family, FromLog], ...]] = (
    (
        Family("kafka_topic_partition_oldest_offset", "gauge", "The first offset that can be read."),
        lambda _partition, log: log.log_start_offset,
    ),
    (Family("kafka_log_log_size", "gauge", "Bytes of this log."), lambda _partition, log: log.size_bytes),
    (
        Family("kafka_log_log_logstartoffset", "gauge", "The first offset of this log."),
        lambda _partition, log: log.log_start_offset,
    ),
    (
        Family("kafka_log_log_logendoffset", "gauge", "The offset after the last record of this log."),
        lambda _partition, log: log.log_end_offset,
    ),
    (
        Family(
            "kafka_cluster_partition_laststableoffsetlag",
            "gauge",
            "Offsets that transactions keep from readers of committed ones.",
        ),
        lambda partition, _log: partition.high_watermark - partition.last_stable_offset,
    ),
    (
        Family("kafka_log_log_numlogsegments", "gauge", "Segments of this log."),
        lambda _partition, log: len(log.segments),
    ),
)


class TopicRows(NamedTuple):
    """Some partitions of a topic that this broker reports, by index, and how their labels begin."""

    labels: str
    min_isr: int
    partitions: list[tuple[int, PartitionImage]]


def partition_families(services: Services, *, is_controller: bool) -> Iterator[str]:
    """Pieces of the page; an empty one only gives the loop a chance to turn."""
    if is_controller:
        yield TOPIC_PARTITIONS.header()
        yield from joined(
            f'{TOPIC_PARTITIONS.name}{{topic="{escaped(topic.name)}"}} {len(topic.partitions)}\n'
            for topic in services.image.topics.values()
        )
    topics: list[TopicRows] = []
    for rows in _reported(services, is_controller=is_controller):
        topics.append(rows)
        yield ""
    for family, value_of in FROM_IMAGE:
        yield family.header()
        yield from joined(_from_image(topics, family.name, value_of))
    yield CURRENT_OFFSET.header()
    yield from joined(_current_offsets(services))
    for family, value_of_log in FROM_LOG:
        yield family.header()
        yield from joined(_from_log(services, family.name, value_of_log))


def _reported(services: Services, *, is_controller: bool) -> Iterator[TopicRows]:
    """Partitions that this broker leads, and at the controller those that nobody leads."""
    node_id = services.node_id
    for topic in services.image.topics.values():
        min_isr = min_insync_replicas(services, topic.name)
        for start in range(0, len(topic.partitions), LINES_PER_PIECE):
            found = [
                (index, partition)
                for index, partition in enumerate(topic.partitions[start : start + LINES_PER_PIECE], start)
                if partition.leader == node_id or (is_controller and partition.leader < 0)
            ]
            yield TopicRows(f'{{topic="{escaped(topic.name)}",partition="', min_isr, found)


def _from_image(topics: list[TopicRows], name: str, value_of: FromImage) -> Iterator[str]:
    for labels, min_isr, partitions in topics:
        head = name + labels
        for index, partition in partitions:
            value = value_of(partition, min_isr)
            if value is not None:
                yield f'{head}{index}"}} {value:d}\n'


def _current_offsets(services: Services) -> Iterator[str]:
    for topic in services.partitions.topics:
        head = f'{CURRENT_OFFSET.name}{{topic="{escaped(topic.name)}",partition="'
        for partition in topic.partitions:
            end = None if partition is None else readable_end(services, partition)
            if partition is not None and end is not None:
                yield f'{head}{partition.index}"}} {end}\n'


def _from_log(services: Services, name: str, value_of: FromLog) -> Iterator[str]:
    for topic in services.partitions.topics:
        head = f'{name}{{topic="{escaped(topic.name)}",partition="'
        for partition in topic.partitions:
            if partition is not None and (log := partition.log_or_none) is not None:
                yield f'{head}{partition.index}"}} {value_of(partition, log)}\n'


def min_insync_replicas(services: Services, topic: str) -> int:
    """As this broker has it configured; 1 for a topic that it does not host."""
    try:
        return services.partitions.topic(topic).config.min_insync_replicas
    except ApiError:
        return 1


class ClusterCounts:
    """How many partitions there are, here and in all, and how many are not as they should be."""

    __slots__ = (
        "at_min_isr",
        "hosted",
        "led",
        "not_preferred",
        "offline",
        "offline_replicas",
        "partitions",
        "reassigning",
        "under_min_isr",
        "under_replicated",
    )

    def __init__(self) -> None:
        self.partitions = 0
        self.offline = 0
        self.not_preferred = 0
        self.hosted = 0
        self.led = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.reassigning = 0
        self.offline_replicas = 0

    def count(self, services: Services) -> Iterator[str]:
        """Count, with a break after each piece."""
        node_id, directories = services.node_id, services.log_directories
        has_failures = not all(directory.online for directory in directories.online)
        for topic in services.image.topics.values():
            min_isr = min_insync_replicas(services, topic.name)
            for start in range(0, len(topic.partitions), LINES_PER_PIECE):
                for index, partition in enumerate(topic.partitions[start : start + LINES_PER_PIECE], start):
                    self._add(partition, node_id, min_isr)
                    if has_failures:
                        found = directories.directory_of(TopicPartition(topic.name, index))
                        self.offline_replicas += found is not None and not found.online
                yield ""

    def _add(self, partition: PartitionImage, node_id: int, min_isr: int) -> None:
        self.partitions += 1
        self.offline += partition.leader < 0
        self.not_preferred += partition.leader != partition.replicas[0]
        self.hosted += node_id in partition.replicas
        if partition.leader == node_id:
            in_sync, needed = len(partition.isr), min(min_isr, len(partition.replicas))
            self.led += 1
            self.under_replicated += in_sync < len(partition.replicas)
            self.under_min_isr += in_sync < needed
            self.at_min_isr += in_sync == needed
            self.reassigning += bool(partition.adding or partition.removing)
