"""A few hosted partitions for tests: their logs are in memory, time stands still, threads run on the loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.log.disk import Disk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import Appended, PartitionLog
from ottla.model.configs.resolve import BrokerConfig, TopicConfig
from ottla.model.errors import StorageError
from ottla.runtime.appending import Appender
from ottla.runtime.fetching import Fetches
from ottla.runtime.flushing import Flushes
from ottla.runtime.neighbours import Neighbours
from ottla.runtime.partition import Partition
from ottla.runtime.partitions import PartitionTable
from ottla.runtime.world import World
from ottla.wire.batch import read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import ProducerFields, batch_of
from tests.unit.runtime.metadata import FixedClock, Inline

NODE_ID = 1
TOPIC = "orders"


class NoRecordWork:
    """A record worker that finds nothing to say."""

    async def validate(
        self, batch: bytes, *, requires_keys: bool, timestamp_range: tuple[int, int] | None = None
    ) -> bytes:
        await asyncio.sleep(0)
        return batch

    async def recompress(self, batch: bytes, codec: int, level: int | None, batch_bytes_max: int) -> bytes:
        return batch


class Hosted:
    """Topics, and what writes and reads them."""

    def __init__(
        self,
        topics: dict[str, TopicConfig] | None = None,
        properties: dict[str, str] | None = None,
        *,
        partitions: int = 3,
        node_id: int = NODE_ID,
        disk: Disk | None = None,
        directory: str = "/data",
    ) -> None:
        self.clock, self.offload, self._directory = FixedClock(), Inline(), directory
        disk = disk or CrashDisk()
        disk.makedirs(directory)
        self.world = World(clock=self.clock, offload=self.offload, disk=disk, rng=random.Random(1))
        self.config = BrokerConfig.from_properties({"log.dirs": directory, **(properties or {})})
        self.failures: list[StorageError] = []
        self._files = OpenFiles(disk, 64)
        self.table = PartitionTable(node_id, self._open_log, self._failed, Neighbours(self.clock.monotonic))
        self.flushes = Flushes(self.world, self.table.directory_failed)
        self.table.neighbours.on_flush_due = self.flushes.begin
        self.appender = Appender(self.clock, NoRecordWork(), self.flushes)
        for number, (name, config) in enumerate(({TOPIC: TopicConfig()} if topics is None else topics).items()):
            states = tuple(
                PartitionImage(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID) for _ in range(partitions)
            )
            self.table.host(TopicImage(name, UUID(int=100 + number), states), config)

    def open_logs(self) -> None:
        """Touch every partition, so that nobody who asks for many of them has to wait."""
        for partition in self.table:
            _ = partition.log

    def fetches(self) -> Fetches:
        return Fetches(self.table, asyncio.get_running_loop())

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        return self.table.leader(topic, index)

    def write(self, producer_id: int, sequence: int, *, index: int = 0, epoch: int = 0, count: int = 1) -> Appended:
        """Write to a transaction, with nobody asked."""
        batch = transactional(producer_id, sequence, epoch=epoch, count=count)
        return self.partition(index).append(memoryview(batch), read_header(batch), self.clock.ms)

    def end(self, producer_id: int, *, committed: bool, index: int = 0, epoch: int = 0) -> Appended:
        return self.partition(index).append_marker(producer_id, epoch, 0, committed=committed, now_ms=self.clock.ms)

    def _open_log(self, partition: Partition, config: TopicConfig) -> PartitionLog:
        tp = partition.topic_partition
        return PartitionLog.open(
            f"{self._directory}/{tp}", tp, config, self.world.disk, self._files, clean=True, now_ms=self.clock.ms
        )

    def _failed(self, error: StorageError) -> bool:
        self.failures.append(error)
        return True


def transactional(producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1) -> bytearray:
    return batch_of(count, producer=ProducerFields(producer_id, epoch, sequence), transactional=True)


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 10)

    asyncio.run(bounded())
