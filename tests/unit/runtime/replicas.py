"""Brokers that replicate one topic to each other inside a test: bytes are handed over, time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from ottla.core.controller.image import BrokerImage, PartitionImage, TopicImage
from ottla.log.partition_log import Appended
from ottla.model.configs.resolve import TopicConfig
from ottla.runtime.fetch_sessions import FetchSession
from ottla.runtime.fetching import Fetches, FetchLimits
from ottla.runtime.partition import Partition
from ottla.wire.batch import read_header
from ottla.wire.fetch_types import PartitionData
from tests.unit.log.support import batch_of, read_bytes
from tests.unit.runtime.hosted import Hosted

TOPIC = "orders"
TOPIC_ID = UUID(int=42)


class Replica(Hosted):
    """One broker and what it hosts."""

    def __init__(self, node_id: int, properties: dict[str, str] | None = None) -> None:
        super().__init__({}, properties, node_id=node_id)
        self.node_id = node_id
        self.session = FetchSession(node_id)
        """With which this broker follows its leader; it lives at the leader."""
        self.follows = -1

    def fetches(self) -> Fetches:
        return Fetches(self.table, asyncio.get_running_loop())


class Cluster:
    """Brokers 1 to n that all host partition 0 of one topic."""

    def __init__(
        self, brokers: int = 3, config: TopicConfig | None = None, *, isr: Sequence[int] | None = None
    ) -> None:
        self.config = config or TopicConfig(min_insync_replicas=2)
        self.replicas = {node_id: Replica(node_id) for node_id in range(1, brokers + 1)}
        self.brokers = {node_id: broker(node_id) for node_id in self.replicas}
        self.state = PartitionImage(
            replicas=tuple(self.replicas), isr=tuple(isr or self.replicas), leader=1, leader_epoch=5, partition_epoch=1
        )
        self.publish()

    @property
    def leader(self) -> Partition:
        return self.partition(self.state.leader)

    def partition(self, node_id: int) -> Partition:
        return self.replicas[node_id].table.hosted(TOPIC, 0)

    def publish(self, *node_ids: int) -> None:
        """Let brokers, all of them unless told, hear of the metadata."""
        topic = TopicImage(TOPIC, TOPIC_ID, (self.state,))
        for node_id in node_ids or self.replicas:
            table = self.replicas[node_id].table
            table.brokers_changed(self.brokers)
            table.host(topic, self.config)

    def change(self, *, leader: int | None = None, isr: Sequence[int] | None = None) -> None:
        """Decide something, as the controller does; nobody hears of it yet."""
        self.state = PartitionImage(
            replicas=self.state.replicas,
            isr=tuple(isr or self.state.isr),
            leader=self.state.leader if leader is None else leader,
            leader_epoch=self.state.leader_epoch + (leader is not None),
            partition_epoch=self.state.partition_epoch + 1,
        )

    def produce(self, count: int = 1, *, node_id: int | None = None) -> Appended:
        node_id = self.state.leader if node_id is None else node_id
        batch = batch_of(count)
        return self.partition(node_id).append(memoryview(batch), read_header(batch), self.replicas[node_id].clock.ms)

    def ask(self, follower: int, *, wait_ms: int = 0) -> list[PartitionData]:
        """One fetch of a follower; the rows of its answer."""
        rows: list[PartitionData] = []
        replica, own = self.replicas[follower], self.partition(follower)
        at = self.replicas[own.leader_id if own.leader_id >= 0 else self.state.leader]
        if replica.follows not in (-1, at.node_id):
            replica.session.close()
            replica.session = FetchSession(follower)
        replica.follows = at.node_id
        session = replica.session
        session.replica_id, session.replica_epoch = follower, self.brokers[follower].epoch
        log = own.log
        session.update(
            TOPIC_ID,
            [(0, own.leader_epoch, log.log_end_offset, log.epochs.latest, log.log_start_offset, 1 << 20)],
        )
        limits = FetchLimits(wait_ms, 1, 1 << 20, 0, bool(session.epoch))
        session.epoch += 1
        at.fetches().fetch(session, limits, lambda topics: rows.extend(row for _, some in topics for row in some))
        return rows

    def replicate(self, follower: int) -> PartitionData | None:
        """One fetch of a follower, and what it does with the answer."""
        rows = self.ask(follower)
        if not rows:
            return None
        (data,) = rows
        own = self.partition(follower)
        if data.error_code:
            return data
        if data.diverging_epoch is not None:
            epoch, end_offset = own.log.epochs.end_offset_for(data.diverging_epoch.epoch, own.log.log_end_offset)
            own.truncate_to(min(data.diverging_epoch.end_offset, end_offset) if epoch >= 0 else 0)
            return data
        records = memoryview(read_bytes(data.records))  # type: ignore[arg-type]
        own.append_as_follower(records, data.high_watermark, data.log_start_offset)
        return data

    def catch_up(self, *followers: int) -> None:
        """Fetch until everything is everywhere, and everybody knows that it is committed."""
        for _ in range(4):
            for follower in followers or [n for n in self.replicas if n != self.state.leader]:
                self.replicate(follower)

    def contents(self, node_id: int) -> bytes:
        log = self.partition(node_id).log
        return read_bytes(log.read(log.log_start_offset, 1 << 20, log.log_end_offset, True))


def broker(node_id: int, *, epoch: int | None = None, fenced: bool = False, rack: str | None = None) -> BrokerImage:
    epoch = 100 + node_id if epoch is None else epoch
    return BrokerImage(
        id=node_id, epoch=epoch, incarnation_id=UUID(int=node_id), endpoints=(), fenced=fenced, rack=rack
    )
