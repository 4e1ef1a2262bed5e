"""A leader in memory that a fetcher can ask: logs, fetch sessions, long polls, and faults on demand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.replication.quota import ReplicationQuota
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.model.configs.resolve import BrokerConfig, TopicConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.flushing import Flushes
from ottla.runtime.followed_partition import FollowerContext
from ottla.runtime.log_directories import LogDirectories
from ottla.runtime.neighbours import Neighbours
from ottla.runtime.network import PeerError
from ottla.runtime.partition import Partition
from ottla.runtime.partitions import PartitionTable
from ottla.runtime.replica_fetcher import ReplicaFetcher
from ottla.runtime.world import World
from ottla.wire import fetch
from ottla.wire.fetch_types import EpochEndOffset, FetchPartition, FetchRequest, PartitionData
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import open_log, read_bytes
from tests.unit.runtime.metadata import FixedClock, Inline

TOPIC, TOPIC_ID = "orders", UUID(int=7)
LEADER, OWN = 2, 1
VERSION = 17


class LeaderStub:
    """Answers fetches as a leader does."""

    def __init__(self, partitions: int = 1, **config: Any) -> None:
        disk = CrashDisk()
        disk.makedirs("/leader")
        self.logs = [
            open_log(disk, f"/leader/{TOPIC}-{n}", tp=TopicPartition(TOPIC, n), config=TopicConfig(**config))
            for n in range(partitions)
        ]
        self.high_watermarks: dict[int, int] = {}
        self.epoch = 5
        self.errors: dict[int, ErrorCode] = {}
        self.unreachable = False
        self.has_room = True
        self.requests: list[FetchRequest] = []
        self.fetched: dict[int, int] = {}
        """Where each partition was asked for last."""
        self._session: dict[int, FetchPartition] = {}
        self._session_epoch = 0
        self._sessions = 0
        self._told: dict[int, tuple[int, int]] = {}
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    def forget_sessions(self) -> None:
        self._session_epoch = -1

    async def request_raw(
        self,
        api_key: int,
        version_max: int,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
        version_min: int = 0,
        reply: Callable[[memoryview], bytes | None] | None = None,
    ) -> tuple[int, memoryview]:
        assert (api_key, timeout_ms > 0) == (1, True)
        asked: bytes | None = body(VERSION)
        while asked is not None:
            answer = await self._answer(fetch.parse(memoryview(asked), 0, VERSION))
            asked = None if reply is None else reply(answer)
        return VERSION, answer

    async def _answer(self, request: FetchRequest) -> memoryview:
        self.requests.append(request)
        self._changed.set()  # A second request ends the wait of the first.
        await asyncio.sleep(0)
        if self.unreachable:
            raise PeerError("leader", "nobody listens there", refused=True)
        error, session_id = self._take(request)
        rows: list[PartitionData] = []
        if not error:
            rows = await self._rows(request)
        topics = [(TOPIC_ID, rows)] if rows else []
        chunks = fetch.encode_response(VERSION, 1, error, session_id, topics)
        return memoryview(b"".join(bytes(chunk) for chunk in chunks))[5:]  # type: ignore[arg-type]

    async def request(self, message: Any, response: Any, *, timeout_ms: int) -> Any:
        assert isinstance(message, ListOffsetsRequest)
        (topic,) = message.topics
        (asked,) = topic.partitions
        offset = self.logs[asked.partition_index].log_start_offset
        found = ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[found])])

    def _take(self, request: FetchRequest) -> tuple[int, int]:
        if request.session_epoch == 0:
            self._session, self._told = {}, {}
            self._session_epoch = 0
            self._sessions += 1
        elif request.session_id != self._sessions or request.session_epoch != self._session_epoch + 1:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0
        else:
            self._session_epoch += 1
        for _, partitions in request.topics:
            for row in partitions:
                self._session[row.index] = row
                self.fetched[row.index] = row.fetch_offset
                self._told.pop(row.index, None)
        for _, indexes in request.forgotten:
            for index in indexes:
                self._session.pop(index, None)
        return 0, self._sessions if self.has_room else 0

    async def _rows(self, request: FetchRequest) -> list[PartitionData]:
        rows = self._look(request)
        self._changed.clear()
        if not any(row.records or row.error_code or row.diverging_epoch for row in rows) and request.max_wait_ms:
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
            rows = self._look(request)
        self._told |= {row.index: (row.high_watermark, row.log_start_offset) for row in rows}
        return rows

    def _look(self, request: FetchRequest) -> list[PartitionData]:
        rows = [self._row(asked) for asked in self._session.values()]
        return [
            row
            for row in rows
            if request.session_epoch == 0
            or row.records
            or row.error_code
            or row.diverging_epoch
            or self._told.get(row.index) != (row.high_watermark, row.log_start_offset)
        ]

    def _row(self, asked: FetchPartition) -> PartitionData:
        index, error = asked.index, self.errors.get(asked.index, ErrorCode.NONE)
        log = self.logs[index]
        if error is ErrorCode.NONE and asked.current_leader_epoch != self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        if error:
            return PartitionData(index, error)
        mark = self.high_watermarks.get(index, log.log_end_offset)
        if asked.last_fetched_epoch >= 0:
            epoch, end = log.epochs.end_offset_for(asked.last_fetched_epoch, log.log_end_offset)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                return PartitionData(
                    index, 0, mark, mark, log.log_start_offset, diverging_epoch=EpochEndOffset(epoch, end)
                )
        if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
            return PartitionData(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        records = read_bytes(log.read(asked.fetch_offset, asked.max_bytes, log.log_end_offset, True))
        return PartitionData(index, 0, mark, mark, log.log_start_offset, None, -1, records)


class Following:
    """A broker that follows: a table of partitions on a disk in memory, and one fetcher."""

    def __init__(self, leader: LeaderStub, properties: dict[str, str] | None = None, **config: Any) -> None:
        self.leader = leader
        self.clock, self.offload, self.disk = FixedClock(), Inline(), CrashDisk()
        self.world = World(clock=self.clock, offload=self.offload, disk=self.disk, rng=random.Random(1))
        self.config = BrokerConfig.from_properties(
            {"log.dirs": "/data", "replica.fetch.backoff.ms": "5", **(properties or {})}
        )
        self.directories = LogDirectories(self.world, OpenFiles(self.disk, 64), 86_400_000)
        self.directories.open(self.config)
        neighbours = Neighbours(
            self.clock.monotonic, stored_high_watermark=self.directories.checkpoints.stored_high_watermark
        )
        self.table = PartitionTable(OWN, self.directories.open_log, self.directories.fail, neighbours)
        self.topic_config = TopicConfig(**config)
        self.discarded: list[Segment] = []
        self.isr: tuple[int, ...] = (LEADER, OWN)
        self.image = MetadataImage()
        self.context = FollowerContext(
            world=self.world,
            node_id=OWN,
            table=self.table,
            directories=self.directories,
            flushes=Flushes(self.world, self.table.directory_failed),
            config=lambda: self.config,
            image=lambda: self.image,
            broker_epoch=lambda: 99,
            discard=self._discard,
        )
        self.quota = ReplicationQuota(self.config.follower_replication_throttled_rate)
        self.fetcher = ReplicaFetcher(LEADER, leader, self.context, self.quota)  # type: ignore[arg-type]
        self.host(leader.epoch)

    def host(self, epoch: int, *, leader: int = LEADER) -> None:
        """The metadata says who leads."""
        state = PartitionImage(replicas=(LEADER, OWN), isr=self.isr, leader=leader, leader_epoch=epoch)
        topic = TopicImage(TOPIC, TOPIC_ID, tuple(state for _ in self.leader.logs))
        self.image = MetadataImage(topics={TOPIC: topic}, topics_by_id={TOPIC_ID: topic})
        self.table.host(topic, self.topic_config)

    def partition(self, index: int = 0) -> Partition:
        return self.table.hosted(TOPIC, index)

    def log(self, index: int = 0) -> PartitionLog:
        return self.partition(index).log

    def follow(self) -> None:
        for partition in self.table.followed():
            self.fetcher.follow(partition)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to come true; whoever waits bounds it."""
        while not condition():
            await asyncio.sleep(0.001)
            self.clock.ms += 1

    async def caught_up(self) -> None:
        """Return when every log is the leader's, and the leader has been told."""

        def is_so() -> bool:
            pairs = zip(self.table.followed(), self.leader.logs, strict=True)
            return all(
                p.log_or_none is not None
                and p.log_or_none.log_end_offset == log.log_end_offset == self.leader.fetched.get(p.index)
                for p, log in pairs
            )

        await self.until(is_so)

    def _discard(self, log: PartitionLog, segments: Sequence[Segment]) -> None:
        self.discarded += segments
