"""A broker with files of its own, one of two that are asked and told the same."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from ottla.core.controller.image import PartitionImage
from ottla.log.disk import RealDisk
from ottla.log.producer_state import SEQUENCE_MAX
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import OttlaError
from ottla.runtime.partition import Partition
from tests.unit.api.produce_groups import Group, Part, Sender
from tests.unit.api.produce_services import Broker
from tests.unit.log.support import NOW_MS, ProducerFields, batch_of
from tests.unit.runtime.hosted import NODE_ID, TOPIC, Hosted

TOPICS = (TOPIC, "payments")
PARTITIONS = 2
OTHER = 2
PATIENCE_MS = 60_000
"""No request waits for so long, however busy the machine is: one side would be refused, and the other one not."""
SEQUENCES_BEGIN = (0, SEQUENCE_MAX - 4)
"""Of each producer."""
Happening: TypeAlias = Literal["begin", "commit", "abort", "epoch", "replicate", "lose", "follow", "alone"]


class StingyDisk(RealDisk):
    """Real files, which get room for a few bytes at a time: 64, and blocks from 32 kB on. Nothing is synced."""

    __slots__ = ()
    fill_bytes = 64

    def sync_dir(self, path: str) -> None:
        pass


class Piece(NamedTuple):
    """A batch of a request."""

    partition: int
    step: int
    """How far its sequence number is from the one that would be next, in batches like it."""
    records: int
    value_bytes: int
    later_ms: int
    is_damaged: bool = False


class Request(NamedTuple):
    pieces: list[Piece]
    topic: int = 0
    acks: int = 1
    version: int = 9


class Receive(NamedTuple):
    requests: list[Request]
    producer: int | None = None
    file_bytes_max: int | None = None
    """A write that goes beyond falls short, and the rest of it fails as on a full disk."""


class Event(NamedTuple):
    """Something that happens to a partition of the first topic between two receives."""

    what: Happening
    partition: int
    producer: int


class Side:
    """One of the two."""

    def __init__(self, group: Group, config: TopicConfig, directory: str) -> None:
        self._directory = Path(directory)
        topics = dict.fromkeys(TOPICS, config)
        self._hosted = Hosted(topics, partitions=PARTITIONS, disk=StingyDisk(), directory=directory)
        self.broker = Broker(self._hosted)
        self.sender = Sender(self.broker.services, group)
        self._partitions = [self._hosted.partition(index, topic) for topic in TOPICS for index in range(PARTITIONS)]
        self._sent: dict[tuple[Partition, int], int] = {}
        """Sequence numbers of this receive."""
        self.refused: list[str] = []
        for producer in range(len(SEQUENCES_BEGIN)):  # What a producer sends first is written alone.
            for partition in self._partitions:
                piece = Piece(partition.index, 0, 1, 0, 0)
                self.receive(Receive([Request([piece], TOPICS.index(partition.topic))], producer))

    def receive(self, receive: Receive) -> None:
        self._sent.clear()
        frames = [
            self.sender.frame(
                [self._part(request, piece, receive.producer) for piece in request.pieces],
                acks=request.acks,
                version=request.version,
                topic=TOPICS[request.topic],
                timeout_ms=PATIENCE_MS,
            )
            for request in receive.requests
        ]
        with _files_up_to(receive.file_bytes_max):
            self.sender.receive(frames)

    def _part(self, request: Request, piece: Piece, producer: int | None) -> Part:
        fields = ProducerFields()
        if producer is not None:
            partition = self._hosted.partition(piece.partition, TOPICS[request.topic])
            expected = self._next_sequence(partition, producer)
            fields = ProducerFields(producer, 0, (expected + piece.step * piece.records) & SEQUENCE_MAX)
            if piece.step == 0 and not piece.is_damaged:
                self._sent[partition, producer] = (expected + piece.records) & SEQUENCE_MAX
        timestamp = NOW_MS + piece.later_ms if piece.later_ms >= 0 else -1
        batch = batch_of(piece.records, timestamp=timestamp, producer=fields, value=b"x" * piece.value_bytes)
        if piece.is_damaged:
            batch[-1] ^= 1
        return piece.partition, batch

    def _next_sequence(self, partition: Partition, producer: int) -> int:
        sent = self._sent.get((partition, producer))
        if sent is not None:
            return sent
        known = [entry for entry in partition.log.producers.to_snapshot() if entry.producer_id == producer]
        return (known[0].last_sequence + 1) & SEQUENCE_MAX if known and known[0].batches else SEQUENCES_BEGIN[producer]

    def happen(self, event: Event) -> None:
        partition = self._hosted.partition(event.partition)
        try:
            if event.what == "begin":
                self._sent.clear()
                sequence = self._next_sequence(partition, event.producer)
                self._hosted.write(event.producer, sequence, index=event.partition)
            elif event.what in ("commit", "abort"):
                self._hosted.end(event.producer, committed=event.what == "commit", index=event.partition)
            elif event.what == "follow":
                _follow(partition)
            else:
                _lead(partition, event.what)
        except OttlaError as error:
            self.refused.append(str(error).replace(str(self._directory), ""))

    async def answers(self) -> list[bytes]:
        """All of them, when followers have everything."""
        for partition in self._partitions:
            if not partition.is_sole:
                _lead(partition, "replicate")
                _follow(partition)
        return [self._anywhere(answer) for answer in await self.sender.settled()]

    def _anywhere(self, answer: bytes) -> bytes:
        return answer.replace(str(self._directory).encode(), b"")

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self._directory.rglob("*") if path.is_file())
        return {path.relative_to(self._directory).as_posix(): path.read_bytes() for path in sorted(paths)}

    def known(self) -> list[Any]:
        counters = [partition.counters for partition in self._partitions]
        return [
            *map(_known, self._partitions),
            [[getattr(each, name) for name in each.__slots__] for each in counters],
            self.broker.services.metrics.requests[0],
            [self._anywhere(answer) for answer in self.sender.answers if isinstance(answer, bytes)],
            self.refused,
            self.sender.direct,
        ]


def _lead(partition: Partition, what: Happening) -> None:
    """Lead on: in another epoch, with a follower that is in sync or is not, or alone."""
    replicas = (NODE_ID,) if what == "alone" else (NODE_ID, OTHER)
    isr = (NODE_ID,) if what == "lose" else replicas
    if what == "epoch":
        replicas = isr = partition.replicas
    partition.become_leader(
        PartitionImage(
            replicas=replicas,
            isr=isr,
            leader=NODE_ID,
            leader_epoch=partition.leader_epoch + (what == "epoch"),
            partition_epoch=partition.partition_epoch + 1,
        )
    )


def _follow(partition: Partition) -> None:
    partition.follower_fetched(OTHER, 1, partition.log.log_end_offset, partition.log.log_start_offset, 0)


@contextmanager
def _files_up_to(file_bytes_max: int | None) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if file_bytes_max is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _known(partition: Partition) -> list[Any]:
    log = partition.log
    segment, indexes, tail = log.active, log.active.indexes, log.active.tail
    return [
        (partition.high_watermark, log.log_end_offset, log.recovery_point, log.epochs.entries),
        [(segment.base_offset, segment.size) for segment in log.segments],
        (segment.fill_at, segment.last_offset_max, segment.log.used, segment.has_room),
        tail and (tail.start, tail.last_offsets, tail.positions),
        (indexes.bytes_since_entry, indexes.max_timestamp, indexes.max_timestamp_offset),
        [(index.entries(), index.last_key, index.last_value) for index in (indexes.offsets, indexes.times)],
        [(entry, entry.batches) for entry in log.producers.to_snapshot()],
        log.producers.first_unstable_offset,
    ]
