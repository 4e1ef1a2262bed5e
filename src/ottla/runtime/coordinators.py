"""All coordinators of one kind that this broker has: one for each partition of the internal topic that it leads.

Theory of operation. A key (a group, a transactional id) belongs to a partition by its hash, so every broker and every
client finds the same one. What stands at a partition's place says what becomes of a command: a coordinator at work
takes it, one that is being loaded or is elsewhere refuses it. Leadership comes with the metadata (`follow`) and moves
by `elect` and `resign`.

A partition that nobody has written to has no files and is at work at once. The others are loaded one after another, so
that a load takes one thread and no more than its share of the interpreter.

What an editor must keep true:
- A load that was overtaken by `resign` or by another `elect` changes nothing any more; the place it works for is then
  not its own.
- Where a partition has followers, a new leader epoch may mean that another broker has led it in between: what was
  loaded before counts for nothing, and the log is read again.
- Everything in the log is loaded, committed or not: a leader's log is what its followers will have. Answers that rest
  on it wait for the high watermark (`coordinator_shard`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import structlog

from ottla.core.coordination import AnswerT, Checks, Command, Outcome, Shard
from ottla.model.errors import ApiError, ErrorCode, OttlaError, StorageError
from ottla.model.ids import NO_SEQUENCE, TopicPartition
from ottla.runtime.coordinator_loading import Decode, QuickReplay, ShardLoading
from ottla.runtime.coordinator_log import CoordinatorLog, Encode, EncodeAlone
from ottla.runtime.coordinator_shard import CoordinatorShard, Effects, not_coordinator
from ottla.runtime.repeated_commits import RepeatedCommits
from ottla.runtime.world import SteadyClock
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from ottla.core.controller.image import ImageDelta, MetadataImage
    from ottla.log.verifications import Verification
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.appending import Flushing
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.world import World

RecordT = TypeVar("RecordT")
A = TypeVar("A")
B = TypeVar("B")

HASHES_KEPT_MAX: Final = 10_000
HASHED_KEY_LENGTH_MAX: Final = 256
"""Longer keys are hashed each time: what is kept stays small."""

log = structlog.get_logger("ottla.coordinators")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind(Generic[RecordT]):
    """What differs between the coordinators of groups and of transactions."""

    topic: str
    new_shard: Callable[[], Shard[RecordT]]
    encode: Encode[RecordT]
    decode: Decode[RecordT]
    partitions_default: Callable[[BrokerConfig], int]
    """How many partitions the topic will have, before it is there."""
    commit_timeout_ms: Callable[[BrokerConfig], int]
    load_buffer_bytes: Callable[[BrokerConfig], int]
    checks: Checks = field(default_factory=dict)
    """What is refused even where there is no coordinator: whoever finds it would say the same."""
    codec: Callable[[BrokerConfig], int] = lambda _: Codec.NONE
    encode_alone: EncodeAlone[RecordT] | None = None
    """For those that are written one at a time, and often."""
    replaceable: bytes | None = None
    """Keys that begin so stand for themselves: of their records outside of transactions only the last one counts."""
    quick_replay: Callable[[Shard[RecordT]], QuickReplay] | None = None
    """For loading: a way around the shard for most records. `replaceable` does not matter then."""
    metadata_changed: Callable[[Shard[RecordT], ImageDelta, int], Outcome[RecordT]] | None = None
    take_effects: Callable[[CoordinatorShard[RecordT]], Effects | None] | None = None


class _Absent:
    """Stands where this broker does not coordinate."""

    __slots__ = ("failed",)

    def __init__(self, *, failed: bool = False) -> None:
        self.failed = failed

    def submit(self, _command: Command[Any]) -> Any:
        raise not_coordinator()


class _Loading:
    """Stands where a coordinator is being loaded."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def submit(self, _command: Command[Any]) -> Any:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator is being loaded; try again")


class Coordinators(Generic[RecordT]):
    """The coordinators of one kind."""

    __slots__ = (
        "_config",
        "_flushing",
        "_has_files",
        "_hashes",
        "_kind",
        "_loader",
        "_places",
        "_table",
        "_to_load",
        "_world",
        "load_ms_last",
        "load_ms_max",
        "loads",
        "records_skipped",
        "repeated",
        "topic",
    )

    def __init__(
        self,
        kind: CoordinatorKind[RecordT],
        world: World,
        table: PartitionTable,
        flushing: Flushing,
        config: Callable[[], BrokerConfig],
        *,
        has_files: Callable[[TopicPartition], bool],
    ) -> None:
        self._kind = kind
        self._world = world
        self._table = table
        self._flushing = flushing
        self._config = config
        self._has_files = has_files
        self._places: list[CoordinatorShard[RecordT] | _Loading | _Absent] = []
        self._hashes: dict[str, int] = {}
        self._to_load: deque[tuple[int, _Loading]] = deque()
        self._loader: asyncio.Task[None] | None = None
        self.topic = kind.topic
        self.repeated = RepeatedCommits()
        """What is known of commits, which only coordinators of groups get."""
        self.loads = 0
        self.load_ms_last = 0
        self.load_ms_max = 0
        self.records_skipped = 0

    # -- commands

    def partition_for(self, key: str) -> int:
        """The partition that a key belongs to."""
        found = self._hashes.get(key)
        if found is None:
            found = key_hash(key)
            if len(key) <= HASHED_KEY_LENGTH_MAX:
                if len(self._hashes) >= HASHES_KEPT_MAX:
                    self._hashes.clear()
                self._hashes[key] = found
        return found % (len(self._places) or self._kind.partitions_default(self._config()))

    def submit(self, key: str, command: Command[AnswerT]) -> AnswerT | Awaitable[AnswerT]:
        """The answer where everything that it rests on is committed already, else something to wait for.

        ApiError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, or what the shard says.
        """
        places = self._places
        if not places:
            self._check(command)
            raise not_coordinator()
        found = self._hashes.get(key)
        place = places[(self.partition_for(key) if found is None else found % len(places))]
        if type(place) is not CoordinatorShard:
            self._check(command)
        return cast("AnswerT | Awaitable[AnswerT]", place.submit(command))

    def _check(self, command: Command[AnswerT]) -> None:
        check = self._kind.checks.get(type(command))
        if check is not None:
            check(command, self._config())

    @property
    def are_known(self) -> bool:
        """Whether the internal topic is there, so that it can be said who coordinates what."""
        return bool(self._places)

    def at_work_for(self, key: str) -> CoordinatorShard[RecordT] | None:
        """Who would be handed a key's commands, if that is a coordinator at work."""
        place = self._places[self.partition_for(key)] if self._places else None
        return place if isinstance(place, CoordinatorShard) else None

    def guard(self, key: str, producer_id: int, producer_epoch: int) -> Callable[[], None]:
        """Note that a producer's transaction is being verified for a key's partition.

        What is returned is called right before the command is submitted. It raises ApiError: INVALID_TXN_STATE if a
        marker has come since, NOT_COORDINATOR, or INVALID_PRODUCER_EPOCH.
        """
        partition = self._table.leading_or_none(self.topic, self.partition_for(key))
        now_ms = self._world.clock.now_ms()
        noted: Verification | OttlaError = not_coordinator()
        try:
            if partition is not None:
                producers = partition.log.producers
                noted = producers.begin_verification(
                    producer_id, producer_epoch, NO_SEQUENCE, now_ms, begins_anew=False
                )
        except OttlaError as error:
            noted = error

        def check() -> None:
            if partition is None or isinstance(noted, OttlaError):
                raise noted if isinstance(noted, ApiError) else not_coordinator()
            partition.log.producers.check_verified(producer_id, producer_epoch, NO_SEQUENCE, noted)

        return check

    async def broadcast(self, make: Callable[[], Command[AnswerT]]) -> list[AnswerT]:
        """The answers of every coordinator here. COORDINATOR_LOAD_IN_PROGRESS while one of them is being loaded."""
        for place in self._places:
            if isinstance(place, _Loading):
                place.submit(make())
        answers = []
        for index, coordinator in enumerate(list(self.active.values())):
            if index % 8 == 7:
                await asyncio.sleep(0)
            answer = coordinator.submit(make())
            answers.append(await answer if isinstance(answer, asyncio.Future) else cast(AnswerT, answer))
        return answers

    def replay_marker(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """A marker was appended to a partition of the internal topic; one that is being loaded reads it in its log."""
        place = self._places[partition] if 0 <= partition < len(self._places) else None
        if isinstance(place, CoordinatorShard):
            place.replay_marker(producer_id, committed=committed)

    @property
    def active(self) -> dict[int, CoordinatorShard[RecordT]]:
        """Those at work, by partition."""
        return {i: place for i, place in enumerate(self._places) if isinstance(place, CoordinatorShard)}

    def counts(self) -> dict[str, int]:
        """How many partitions are in which state, by Kafka's names for these."""
        counts = {"active": 0, "loading": 0, "failed": 0}
        for place in self._places:
            if isinstance(place, CoordinatorShard):
                counts["active"] += 1
            elif isinstance(place, _Loading):
                counts["loading"] += 1
            else:
                counts["failed"] += place.failed
        return counts

    # -- leadership

    def follow(self, image: MetadataImage, node_id: int) -> None:
        """Coordinate what this broker leads by this metadata, and nothing else."""
        topic = image.topics.get(self.topic)
        partitions = () if topic is None else topic.partitions
        for index in range(len(partitions), len(self._places)):
            self.resign(index)
        del self._places[len(partitions) :]
        self._places += [_Absent() for _ in range(len(partitions) - len(self._places))]
        for index, partition in enumerate(partitions):
            if partition.leader == node_id:
                self.elect(index, partition.leader_epoch)
            else:
                self.resign(index)

    def metadata_changed(self, image: MetadataImage, delta: ImageDelta, node_id: int) -> None:
        """Follow leadership where it changed, and tell the shards what else did."""
        topic = image.topics.get(self.topic)
        came_or_went = any(changed.name == self.topic for changed in (*delta.topics_created, *delta.topics_deleted))
        if came_or_went or (topic is not None and topic.id in delta.partitions_changed):
            self.follow(image, node_id)
        tell = self._kind.metadata_changed
        if tell is not None and (
            delta.topics_created or delta.topics_deleted or delta.partitions_changed or delta.configs_changed
        ):
            for place in self._places:
                if isinstance(place, CoordinatorShard):
                    shard = place.shard
                    place.perform(lambda now_ms, shard=shard: tell(shard, delta, now_ms))  # type: ignore[misc]

    def elect(self, index: int, leader_epoch: int) -> None:
        """This broker leads a partition, in this epoch: coordinate it."""
        partition = self._table.leading_or_none(self.topic, index)
        place = self._places[index]
        if not isinstance(place, _Absent):
            if leader_epoch <= place.epoch:
                return
            if partition is None or partition.is_sole:
                place.epoch = leader_epoch
                return
            self.resign(index)
        if partition is None:
            return
        if partition.log_or_none is None and not self._has_files(partition.topic_partition):
            self._activate(index, partition, self._kind.new_shard(), leader_epoch, 0)
            return
        loading = self._places[index] = _Loading(leader_epoch)
        self._to_load.append((index, loading))
        if self._loader is None:
            self._loader = asyncio.ensure_future(self._load_all())

    def resign(self, index: int) -> None:
        """Another broker leads a partition, or it is gone: whoever waits is told to look for it."""
        place, self._places[index] = self._places[index], _Absent()
        if isinstance(place, CoordinatorShard):
            place.resign()
            self.repeated.forget()

    async def close(self) -> None:
        """Let go of everything; the partitions may be closed afterwards."""
        self._to_load.clear()
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.gather(self._loader, return_exceptions=True)
        for index in range(len(self._places)):
            self.resign(index)

    async def loaded(self) -> None:
        """Return when nothing is being loaded any more."""
        if self._loader is not None:
            await asyncio.wait([self._loader])

    # -- loading

    async def _load_all(self) -> None:
        try:
            while self._to_load:
                index, place = self._to_load.popleft()
                if self._is_at(index, place):
                    await self._load(index, place)
        finally:
            self._loader = None

    async def _load(self, index: int, place: _Loading) -> None:
        name = f"{self.topic}-{index}"
        started = self._world.clock.monotonic()
        try:
            partition = self._table.leader(self.topic, index)
            shard = self._kind.new_shard()
            buffer_bytes = self._kind.load_buffer_bytes(self._config())
            kind = self._kind
            quick = None if kind.quick_replay is None else kind.quick_replay(shard)
            loading = ShardLoading(shard, partition.log, kind.decode, buffer_bytes, kind.replaceable, quick)
            while not loading.is_over:
                await self._world.offload.run(loading.replay_slice)
                if not self._is_at(index, place):
                    return
        except OttlaError as error:
            log.error("a coordinator could not be loaded", partition=name, reason=str(error))
            if isinstance(error, StorageError):
                self._table.directory_failed(error)
            if self._is_at(index, place):
                self._places[index] = _Absent(failed=True)
            return
        self.loads += 1
        self.load_ms_last = int(1000 * (self._world.clock.monotonic() - started))
        self.load_ms_max = max(self.load_ms_max, self.load_ms_last)
        self.records_skipped += loading.skipped + loading.faults
        if loading.skipped or loading.faults:
            log.warning(
                "a coordinator passed over records of its log",
                partition=name,
                unknown_or_corrupt=loading.skipped,
                failed=loading.faults,
                records=loading.records,
            )
        self._activate(index, partition, shard, place.epoch, loading.next_offset)

    def _is_at(self, index: int, place: _Loading) -> bool:
        return index < len(self._places) and self._places[index] is place

    def _activate(self, index: int, partition: Partition, shard: Shard[RecordT], epoch: int, end_offset: int) -> None:
        kind, config = self._kind, self._config
        coordinator_log = CoordinatorLog(
            self._table.topic(self.topic),
            partition,
            kind.encode,
            self._flushing,
            self._table.directory_failed,
            kind.codec(config()),
            kind.encode_alone,
        )
        coordinator = CoordinatorShard(
            shard,
            coordinator_log,
            SteadyClock(self._world.clock),
            epoch=epoch,
            commit_timeout_ms=lambda: kind.commit_timeout_ms(config()),
            on_lost=lambda: self._lost(index, coordinator),
            take_effects=kind.take_effects,
        )
        self._places[index] = coordinator
        coordinator.start(end_offset)

    def _lost(self, index: int, coordinator: CoordinatorShard[RecordT]) -> None:
        """The log is not there any more; if this broker still leads the partition, that is a failure."""
        if index < len(self._places) and self._places[index] is coordinator:
            self.resign(index)
            self._places[index] = _Absent(failed=True)


def then(result: A | Awaitable[A], make: Callable[[A], B]) -> B | Awaitable[B]:
    """`make` of the result: at once where it is there, else when it comes."""
    if hasattr(type(result), "__await__"):
        return _made(cast("Awaitable[A]", result), make)
    return make(cast(A, result))


async def _made(result: Awaitable[A], make: Callable[[A], B]) -> B:
    return make(await result)


def key_hash(key: str) -> int:
    """Kafka's number of a key: Java's hash of the string without its sign; the one that cannot lose it counts as 0."""
    hashed = 0
    for unit in _utf16_units(key):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    if hashed < 0x8000_0000:
        return hashed
    return (0x1_0000_0000 - hashed) & 0x7FFF_FFFF


def _utf16_units(key: str) -> Iterator[int] | memoryview:
    if key.isascii():
        return memoryview(key.encode())
    return memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H")
