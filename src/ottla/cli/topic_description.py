"""What `ottla topic` gathers about topics: metadata, offsets, sizes and configs in one picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from ottla.cli.output import size_text
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.descriptions import ConfigEntry, LogDirectory
from ottla.client.errors import BrokerError, UnsupportedVersionError
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.model.configs.definition import ConfigSource, ResourceType
from ottla.model.ids import TopicPartition, uuid_to_base64

UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition; numbers are -1 where nobody could say."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    start: int
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic as `ottla topic describe` shows it."""

    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionDescription]
    configs: list[ConfigEntry]

    @property
    def records(self) -> int:
        """An upper bound: compaction and transactions leave gaps between offsets."""
        return sum(partition.end - partition.start for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(max(partition.size_bytes, 0) for partition in self.partitions)

    def summary(self, *, readable: bool) -> dict[str, object]:
        """The topic in a few lines."""
        return {
            "topic": self.name,
            "id": self.topic_id,
            "partitions": len(self.partitions),
            "replicas": max((len(partition.replicas) for partition in self.partitions), default=0),
            "records": self.records,
            "size": size_text(self.size_bytes) if readable else self.size_bytes,
        }

    def partition_rows(self, *, readable: bool) -> list[dict[str, object]]:
        """A row for each partition."""
        return [
            {
                "partition": partition.partition,
                "leader": "none" if partition.leader == UNKNOWN else partition.leader,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "start": partition.start,
                "end": partition.end,
                "records": partition.end - partition.start,
                "size": size_text(partition.size_bytes) if readable else partition.size_bytes,
            }
            for partition in self.partitions
        ]

    def config_rows(self) -> list[dict[str, object]]:
        """A row for each config."""
        return [
            {"config": entry.name, "value": entry.value, "source": source_text(entry.source)} for entry in self.configs
        ]

    def as_json(self) -> dict[str, object]:
        """Everything, for programs."""
        return {
            "topic": self.name,
            "topic_id": self.topic_id,
            "internal": self.internal,
            "partitions": [asdict(partition) for partition in self.partitions],
            "configs": {entry.name: entry.value for entry in self.configs},
        }


def describe_topic(cluster: Cluster, name: str, *, all_configs: bool) -> TopicDescription:
    """Ask for everything there is to know about a topic."""
    admin = Admin(cluster)
    topic = admin.describe_topic(name)
    led = [TopicPartition(name, partition.partition) for partition in topic.partitions if partition.leader != UNKNOWN]
    starts = list_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(led, LATEST))
    sizes = _partition_sizes(_log_directories(admin), name)
    configs = admin.describe_configs(ResourceType.TOPIC, name)
    partitions = []
    for entry in topic.partitions:
        key = TopicPartition(name, entry.partition)
        partitions.append(
            PartitionDescription(
                partition=entry.partition,
                leader=entry.leader,
                leader_epoch=entry.leader_epoch,
                replicas=list(entry.replicas),
                isr=list(entry.isr),
                offline=list(entry.offline),
                start=starts[key].offset if key in starts else UNKNOWN,
                end=ends[key].offset if key in ends else UNKNOWN,
                size_bytes=sizes.get((entry.leader, entry.partition), UNKNOWN),
            )
        )
    return TopicDescription(
        name=name,
        topic_id=uuid_to_base64(topic.topic_id),
        internal=topic.internal,
        partitions=partitions,
        configs=[entry for entry in configs if all_configs or entry.source is ConfigSource.DYNAMIC_TOPIC],
    )


def topic_sizes(admin: Admin) -> Counter[str]:
    """Bytes on disk of each topic, all replicas together; empty if the cluster does not say."""
    sizes: Counter[str] = Counter()
    for directory in _log_directories(admin):
        for replica in directory.replicas:
            sizes[replica.partition.topic] += replica.size_bytes
    return sizes


def source_text(source: ConfigSource) -> str:
    """Where a config comes from, in a word or two."""
    return source.name.lower().removeprefix("dynamic_").replace("_", " ")


def _log_directories(admin: Admin) -> list[LogDirectory]:
    try:
        return admin.describe_log_dirs()
    except (BrokerError, UnsupportedVersionError):
        return []  # sizes are worth showing, not worth failing for


def _partition_sizes(directories: list[LogDirectory], topic: str) -> dict[tuple[int, int], int]:
    return {
        (directory.node_id, replica.partition.partition): replica.size_bytes
        for directory in directories
        for replica in directory.replicas
        if replica.partition.topic == topic and not replica.future
    }
