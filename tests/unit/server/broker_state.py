"""A broker's state without a broker: the real tables and counters, and logs that are made up."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid5

from ottla.api.context import Services
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerStates
from ottla.model.configs.resolve import BrokerConfig, TopicConfig
from ottla.model.ids import TopicPartition
from ottla.runtime.fetch_sessions import FetchSessions
from ottla.runtime.metrics import Metrics
from ottla.runtime.neighbours import Neighbours
from ottla.runtime.partition import Partition
from ottla.runtime.partitions import PartitionTable
from ottla.runtime.quorum import QuorumDescription, QuorumReplica
from ottla.runtime.telemetry import Telemetry
from ottla.runtime.world import SystemClock
from tests.unit.server.loopback import ThreadOffload

NODE_ID = 1
CLUSTER_ID = "Q2x1c3Rlck9mVGVzdHM"
NAMESPACE = UUID("6f0ad0a1-5a29-4c5d-9a57-0d3a1f0b3c11")


class FakeLog(SimpleNamespace):
    """What the page reads of a partition's log."""


def made_up(topic: str) -> SimpleNamespace:
    """Coordinators of one kind, as the page reads them."""
    counts = {"active": 0, "loading": 0, "failed": 0}
    return SimpleNamespace(topic=topic, active={}, counts=lambda: counts, load_ms_max=0, records_skipped=0)


class BrokerState:
    """One broker of a cluster; `services` is what its server is given."""

    def __init__(self) -> None:
        self.logs_opened: list[tuple[str, int]] = []
        self.quorum_leader = NODE_ID
        self.directory_by_topic: dict[str, object] = {}
        table = PartitionTable(NODE_ID, self._open_log, lambda _error: False, Neighbours(SystemClock().monotonic))
        clock = SystemClock()
        self.groups, self.transactions = made_up("__consumer_offsets"), made_up("__transaction_state")
        self.ends_at_rest: dict[tuple[str, int], int] = {}
        """Of logs that were not touched."""
        self.services = cast(
            Services,
            SimpleNamespace(
                world=SimpleNamespace(offload=ThreadOffload(), clock=clock),
                node_id=NODE_ID,
                cluster_id=CLUSTER_ID,
                config=BrokerConfig.from_properties({"node.id": str(NODE_ID)}),
                image=MetadataImage(cluster_id=CLUSTER_ID),
                partitions=table,
                quorum=SimpleNamespace(describe=self._describe_quorum),
                sessions=FetchSessions(10, random.Random(1)),
                metrics=Metrics(),
                log_directories=SimpleNamespace(
                    online=[],
                    unopened={},
                    directory_of=self._directory_of,
                    end_at_rest=lambda found: self.ends_at_rest.get((found.topic, found.index)),
                ),
                telemetry=Telemetry(clock, lambda: UUID(int=random.getrandbits(128))),
                groups=self.groups,
                transactions=SimpleNamespace(coordinators=self.transactions),
            ),
        )

    def add_topic(self, name: str, *partitions: PartitionImage, min_isr: int = 1) -> None:
        """A topic as the metadata and the table know it; one partition of this broker alone unless told."""
        topic = TopicImage(name, uuid5(NAMESPACE, name), partitions or (partition(),))
        image = self.services.image
        self.services.image = MetadataImage(
            cluster_id=CLUSTER_ID,
            brokers=image.brokers or {NODE_ID: broker(NODE_ID)},
            topics={**image.topics, name: topic},
            offset=image.offset + 1,
        )
        self.services.partitions.host(topic, TopicConfig(min_insync_replicas=min_isr))

    def add_broker(self, node_id: int, *, fenced: bool = False) -> None:
        image = self.services.image
        self.services.image = MetadataImage(
            cluster_id=CLUSTER_ID,
            brokers={**image.brokers, node_id: broker(node_id, fenced=fenced)},
            topics=image.topics,
            offset=image.offset + 1,
        )

    def delete_topic(self, name: str) -> None:
        image = self.services.image
        topics = dict(image.topics)
        self.services.partitions.drop(topics.pop(name).id)
        self.services.image = MetadataImage(cluster_id=CLUSTER_ID, brokers=image.brokers, topics=topics)

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.services.partitions.leader(topic, index)

    def touch(
        self, topic: str, index: int = 0, *, start: int = 0, end: int = 0, size: int = 0, segments: int = 1
    ) -> None:
        """Have the log of a partition opened, as a client does, and say what is in it."""
        found = self.partition(topic, index)
        log = cast(FakeLog, found.log)
        log.log_start_offset, log.log_end_offset, log.size_bytes = start, end, size
        log.segments = [None] * segments
        found.high_watermark = end

    def _open_log(self, found: Partition, _config: TopicConfig) -> PartitionLog:
        self.logs_opened.append((found.topic, found.index))
        log = FakeLog(
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
            flush_messages=1 << 62,
            flush_due=lambda: False,
            size_bytes=0,
            segments=[None],
            producers=ProducerStates(),
            epochs=SimpleNamespace(assign=lambda _epoch, _offset: None),
        )
        return cast(PartitionLog, log)

    def _directory_of(self, tp: TopicPartition) -> object:
        return self.directory_by_topic.get(tp.topic)

    def _describe_quorum(self) -> QuorumDescription:
        own = QuorumReplica(NODE_ID, UUID(int=7), 42, -1, -1)
        return QuorumDescription(
            leader_id=self.quorum_leader, leader_epoch=3, high_watermark=42, voters=(own,), observers=()
        )


def partition(
    leader: int = NODE_ID, replicas: tuple[int, ...] = (NODE_ID,), isr: tuple[int, ...] | None = None
) -> PartitionImage:
    return PartitionImage(replicas=replicas, isr=replicas if isr is None else isr, leader=leader)


def broker(node_id: int, *, fenced: bool = False) -> BrokerImage:
    endpoint = BrokerEndpoint("PLAINTEXT", f"host-{node_id}", 9092, 0)
    return BrokerImage(id=node_id, epoch=0, incarnation_id=UUID(int=node_id), endpoints=(endpoint,), fenced=fenced)
