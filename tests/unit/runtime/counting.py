"""A coordinator for tests that counts: a toy shard, its codec, and a broker's partitions on a real directory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from ottla.core.controller.image import ImageDelta, MetadataImage, PartitionImage, TopicImage
from ottla.core.coordination import Command, Outcome, Shard, Ticket
from ottla.core.timers import Timers
from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import BrokerConfig, TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.coordinators import CoordinatorKind, Coordinators
from ottla.runtime.flushing import Flushes
from ottla.runtime.neighbours import Neighbours
from ottla.runtime.partition import Partition
from ottla.runtime.partitions import PartitionTable
from ottla.runtime.world import World
from tests.unit.runtime.metadata import FixedClock, Inline

TOPIC = "__counts"
TOPIC_ID = UUID(int=4711)
NODE_ID = 1


class Count(NamedTuple):
    """What the toy writes: a name has been counted this often."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Add(Command[int]):
    """Count; answered with how often."""

    name: str
    times: int = 1
    producer_id: int = -1
    keep: Callable[[ErrorCode], Any] | None = None


@dataclass(frozen=True, slots=True)
class Get(Command[int]):
    """How often."""

    name: str


@dataclass(frozen=True, slots=True)
class WaitFor(Command[int]):
    """Answered when a name has been counted, or after `wait_ms` with -1."""

    name: str
    wait_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Break(Command[int]):
    """Meets a fault."""


class CountingShard:
    """Counts; a negative count is refused, a count of 666 breaks the replay."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pending: dict[int, list[Count]] = {}
        self.waiting: dict[str, list[Ticket]] = {}
        self.timers: Timers[str] = Timers()
        self.replayed: list[Count] = []
        self.deltas: list[ImageDelta] = []
        self.is_loaded = False
        self.on_tick: Callable[[], None] = lambda: None

    def decide(self, command: Command[Any], ticket: Ticket, now_ms: int) -> Outcome[Count]:
        if isinstance(command, Get):
            return Outcome(answers=[(ticket, self.counts.get(command.name, 0))])
        if isinstance(command, WaitFor):
            self.waiting.setdefault(command.name, []).append(ticket)
            self.timers.set(command.name, now_ms + command.wait_ms)
            return Outcome()
        if isinstance(command, Break):
            raise KeyError("a fault")
        assert isinstance(command, Add)
        if command.times < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, "counts grow")
        value = self.counts.get(command.name, 0)
        records = [Count(command.name, value + step) for step in range(1, command.times + 1)]
        answers = [(ticket, value + command.times)]
        answers += [(waiting, value + command.times) for waiting in self.waiting.pop(command.name, ())]
        keep = command.keep
        return Outcome(
            records,
            answers,
            producer_id=command.producer_id,
            producer_epoch=0 if command.producer_id >= 0 else -1,
            not_written=None if keep is None else lambda code, _: Outcome(answers=[(ticket, keep(code))]),
        )

    def tick(self, now_ms: int) -> Outcome[Count]:
        self.on_tick()
        outcome: Outcome[Count] = Outcome()
        for name in self.timers.due(now_ms):
            outcome.records.append(Count(f"late {name}", 1))
            for ticket in self.waiting.pop(name, ()):
                outcome.answer(ticket, -1)
        return outcome

    def next_deadline_ms(self) -> int | None:
        return self.timers.next_deadline_ms()

    def replay(self, record: Count, producer_id: int) -> None:
        if record.value == 666:
            raise ZeroDivisionError("the beast")
        self.replayed.append(record)
        if producer_id >= 0:
            self.pending.setdefault(producer_id, []).append(record)
        else:
            self.counts[record.name] = record.value

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        for record in self.pending.pop(producer_id, ()):
            if committed:
                self.counts[record.name] = record.value

    def loaded(self, now_ms: int) -> Outcome[Count]:
        self.is_loaded = True
        return Outcome()


def encode(record: Count) -> tuple[bytes, bytes | None]:
    return record.name.encode(), b"%d" % record.value if record.value else None


def decode(key: bytes, value: bytes | None) -> Count | None:
    if value is None:
        return Count(key.decode(), 0)
    return Count(key.decode(), int(value)) if value.isdigit() else None


def tell(shard: Shard[Count], delta: ImageDelta, _now_ms: int) -> Outcome[Count]:
    assert isinstance(shard, CountingShard)
    shard.deltas.append(delta)
    return Outcome()


class CountingBroker:
    """What coordinators need of a broker. What outlives a restart is in `path`; nothing is synced, as in a crash."""

    def __init__(
        self,
        path: Path,
        *,
        partitions: int = 1,
        topic_config: TopicConfig | None = None,
        properties: dict[str, str] | None = None,
        codec: int = 0,
    ) -> None:
        self.path = path
        self.clock, self.offload = FixedClock(), Inline()
        disk = RealDisk()
        self.world = World(clock=self.clock, offload=self.offload, disk=disk, rng=random.Random(1))
        self.config = BrokerConfig.from_properties({"log.dirs": str(path), **(properties or {})})
        self.topic_config = topic_config or TopicConfig(cleanup_compact=True, cleanup_delete=False)
        self.files = OpenFiles(disk)
        self.failed_directories: list[str] = []
        self.table = PartitionTable(NODE_ID, self._open_log, self._directory_failed, Neighbours(self.clock.monotonic))
        self.flushes = Flushes(self.world, self.table.directory_failed)
        self.shards: list[CountingShard] = []
        kind: CoordinatorKind[Count] = CoordinatorKind(
            topic=TOPIC,
            new_shard=self._new_shard,
            encode=encode,
            decode=decode,
            partitions_default=lambda _: 50,
            commit_timeout_ms=lambda config: config.offsets_commit_timeout_ms,
            load_buffer_bytes=lambda config: config.offsets_load_buffer_size,
            codec=lambda _: codec,
            metadata_changed=tell,
        )
        self.coordinators = Coordinators(
            kind, self.world, self.table, self.flushes, lambda: self.config, has_files=self._has_files
        )
        states = tuple(PartitionImage(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID) for _ in range(partitions))
        self.topic = TopicImage(TOPIC, TOPIC_ID, states)
        self.image = MetadataImage(topics={TOPIC: self.topic}, topics_by_id={TOPIC_ID: self.topic})

    def start(self) -> Coordinators[Count]:
        """Host the topic and lead all of it."""
        self.table.host(self.topic, self.topic_config)
        self.coordinators.follow(self.image, NODE_ID)
        return self.coordinators

    def take(self, *states: PartitionImage) -> None:
        """New metadata: partitions with other leaders, replicas or epochs."""
        self.topic = TopicImage(TOPIC, TOPIC_ID, states)
        self.image = MetadataImage(topics={TOPIC: self.topic}, topics_by_id={TOPIC_ID: self.topic})
        self.table.host(self.topic, self.topic_config)
        delta = ImageDelta(partitions_changed={TOPIC_ID: frozenset(range(len(states)))})
        self.coordinators.metadata_changed(self.image, delta, NODE_ID)

    def partition(self, index: int = 0) -> Partition:
        return self.table.leader(TOPIC, index)

    @property
    def shard(self) -> CountingShard:
        """The youngest one."""
        return self.shards[-1]

    def _new_shard(self) -> CountingShard:
        self.shards.append(CountingShard())
        return self.shards[-1]

    def _directory(self, tp: TopicPartition) -> Path:
        return self.path / str(tp)

    def _has_files(self, tp: TopicPartition) -> bool:
        return self._directory(tp).exists()

    def _open_log(self, partition: Partition, config: TopicConfig) -> PartitionLog:
        tp = partition.topic_partition
        return PartitionLog.open(
            str(self._directory(tp)),
            tp,
            config,
            self.world.disk,
            self.files,
            clean=False,
            now_ms=self.clock.ms,
            topic_id=partition.topic_id,
        )

    def _directory_failed(self, error: Any) -> bool:
        self.failed_directories.append(error.directory)
        return True
