"""A consumer without a thread and without a group: the caller says which partitions, from where.

    consumer = Consumer(cluster)
    consumer.assign({TopicPartition("orders", 0): EARLIEST})
    for record in consumer.poll(1_000):
        ...

Theory of operation. A partition has two positions: `position` is behind the last record that was handed out, and the
fetch position is behind the last batch that has arrived. `poll` keeps one fetch under way to each leader while less
than `buffer_bytes_max` waits to be decoded, takes the answers that come, and decodes batch by batch only as many
records as it hands out; a damaged one is an error after those before it. What was fetched for a partition that was
moved or dropped meanwhile is thrown away.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection, Pending
from ottla.client.deadline import Backoff, Deadline
from ottla.client.errors import (
    STALE_METADATA_CODES,
    ClientError,
    CorruptBatchError,
    OffsetOutOfRangeError,
    broker_error,
)
from ottla.client.fetching import Fetched, FetchedPartition, FetchSession, FetchSettings, send_fetch
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.visibility import visible_batches, whole_batches
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.records import Record, walk


class AtTime(NamedTuple):
    """Start at the first record that is not older than this."""

    timestamp_ms: int


class OutOfRange(StrEnum):
    """What to do when the partition does not hold the offset that is wanted (Kafka's auto.offset.reset)."""

    ERROR = "none"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How to read. Picklable."""

    fetch: FetchSettings = field(default_factory=FetchSettings)
    sessions: bool = True
    out_of_range: OutOfRange = OutOfRange.ERROR
    buffer_bytes_max: int = 16 << 20
    crc_check: bool = True


class ConsumedRecord(NamedTuple):
    """A record and where it came from."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    log_append_time: bool
    """Whether the broker set the timestamp."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class _Arrived(NamedTuple):
    """Whole batches that wait to be decoded."""

    partition: TopicPartition
    generation: int
    records: memoryview
    next_offset: int
    aborted: tuple[tuple[int, int], ...]


class _UnderWay(NamedTuple):
    connection: Connection
    pending: Pending[Fetched]
    asked: dict[TopicPartition, tuple[int, int]]
    """Fetch position and generation of each partition when it was asked for."""


class _Position:
    __slots__ = ("fetch", "generation", "read", "retry_at")

    def __init__(self, offset: int, generation: int) -> None:
        self.read = offset
        self.fetch = offset
        self.generation = generation
        self.retry_at = 0.0


class Consumer:
    """Reads the partitions that it was assigned, over a cluster that somebody else closes."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings | None = None) -> None:
        self.settings = settings or ConsumerSettings()
        self._cluster = cluster
        self._positions: dict[TopicPartition, _Position] = {}
        self._generation = 0
        self._under_way: dict[int, _UnderWay] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._arrived: deque[_Arrived] = deque()
        self._arrived_bytes = 0
        self._ready: Iterator[ConsumedRecord] = iter(())
        self._backoff = Backoff(cluster.settings)
        self.high_watermarks: dict[TopicPartition, int] = {}

    # What to read

    def assign(self, starts: Mapping[TopicPartition, int | AtTime]) -> None:
        """Read these partitions and no others, each from an offset, EARLIEST, LATEST or a time."""
        self._positions.clear()
        self._drop_arrived()
        for partition, offset in self._resolve(starts).items():
            self.seek(partition, offset)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`, which may also be a partition that was not assigned before."""
        self._generation += 1
        self._positions[partition] = _Position(offset, self._generation)

    def drop(self, partition: TopicPartition) -> None:
        """No more records of this partition."""
        self._positions.pop(partition, None)

    def position(self, partition: TopicPartition) -> int:
        """The offset after the last record that was handed out, or passed over because nobody may see it."""
        return self._positions[partition].read

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return tuple(self._positions)

    def _resolve(self, starts: Mapping[TopicPartition, int | AtTime]) -> dict[TopicPartition, int]:
        asked = {
            partition: start.timestamp_ms if isinstance(start, AtTime) else start
            for partition, start in starts.items()
            if isinstance(start, AtTime) or start < 0
        }
        isolation = self.settings.fetch.isolation
        found = list_offsets(self._cluster, asked, isolation) if asked else {}
        late = {partition: LATEST for partition, at in found.items() if at.offset < 0}
        if late:
            found |= list_offsets(self._cluster, late, isolation)
        exact = {partition: start for partition, start in starts.items() if isinstance(start, int)}
        return exact | {partition: at.offset for partition, at in found.items()}

    # Reading

    def poll(self, wait_ms: float = 1_000, records_max: int = 500) -> list[ConsumedRecord]:
        """Up to `records_max` records, as soon as there are any; none if nothing came within `wait_ms`.

        While no broker can be reached it waits for longer, up to `api_timeout_ms`, and then raises.
        """
        deadline = Deadline(wait_ms)
        while True:
            taken = self._take_ready(records_max)
            self._send_fetches()
            if taken or deadline.passed() or not self._positions:
                return taken
            self._await_answers(deadline)

    def _take_ready(self, records_max: int) -> list[ConsumedRecord]:
        taken: list[ConsumedRecord] = []
        while len(taken) < records_max:
            try:
                record = next(self._ready, None)
            except CorruptBatchError as error:
                if not taken:
                    raise
                self._ready = map(_raise, (error,))  # After what came before it.
                break
            if record is not None:
                taken.append(record)
            elif self._arrived:
                self._ready = self._decode(self._arrived.popleft())
            else:
                break
        return taken

    def _decode(self, arrived: _Arrived) -> Iterator[ConsumedRecord]:
        """The visible records of a fetched range; positions move as they are handed out."""
        self._arrived_bytes -= len(arrived.records)
        key = arrived.partition
        for start, header in visible_batches(arrived.records, self.settings.fetch.isolation, arrived.aborted):
            batch = arrived.records[start : start + header.size]
            for record in self._records(key, batch, header.base_offset):
                position = self._current(arrived)
                if position is None:
                    return
                if record.offset >= position.read:
                    position.read = record.offset + 1
                    yield _consumed(key, record, header.log_append_time)
        position = self._current(arrived)
        if position is not None:
            position.read = max(position.read, arrived.next_offset)

    def _current(self, arrived: _Arrived) -> _Position | None:
        """The partition's position, unless it was moved or dropped since this was fetched."""
        position = self._positions.get(arrived.partition)
        return position if position is not None and position.generation == arrived.generation else None

    def _records(self, partition: TopicPartition, batch: memoryview, base_offset: int) -> Iterator[Record]:
        try:
            yield from walk(batch, crc_check=self.settings.crc_check)
        except ApiError as error:
            raise CorruptBatchError(f"the batch at offset {base_offset} of {partition}: {error.message}") from error

    def _drop_arrived(self) -> None:
        self._arrived.clear()
        self._arrived_bytes = 0
        self._ready = iter(())

    # Fetching

    def _send_fetches(self) -> None:
        if self._arrived_bytes >= self.settings.buffer_bytes_max:
            return
        for node_id, positions in self._wanted_by_leader().items():
            try:
                connection = self._cluster.connection(node_id, waiting=True)
                session = self._session(node_id) if self.settings.sessions else None
                offsets = {partition: position.fetch for partition, position in positions.items()}
                pending = send_fetch(self._cluster, connection, offsets, self.settings.fetch, session)
            except ClientError as error:
                self._sessions.pop(node_id, None)
                self._postpone(positions, error)
                continue
            asked = {partition: (position.fetch, position.generation) for partition, position in positions.items()}
            self._under_way[node_id] = _UnderWay(connection, pending, asked)

    def _wanted_by_leader(self) -> dict[int, dict[TopicPartition, _Position]]:
        now = time.monotonic()
        wanted: dict[int, dict[TopicPartition, _Position]] = {}
        for partition, position in list(self._positions.items()):
            if position.retry_at > now:
                continue
            try:
                node_id = self._cluster.leader(partition).node_id
            except ClientError as error:
                self._postpone({partition: position}, error)
                continue
            if node_id not in self._under_way:
                wanted.setdefault(node_id, {})[partition] = position
        return wanted

    def _session(self, node_id: int) -> FetchSession:
        return self._sessions.setdefault(node_id, FetchSession())

    def _await_answers(self, deadline: Deadline) -> None:
        if not self._under_way:
            retry_at = min((position.retry_at for position in self._positions.values()), default=0.0)
            time.sleep(min(max(retry_at - time.monotonic(), 0.001), deadline.seconds_left()))
            return
        waiting = [entry for entry in self._under_way.values() if not entry.connection.answered(entry.pending)]
        if len(waiting) == len(self._under_way):
            poller = select.poll()
            for entry in waiting:
                poller.register(entry.connection.fileno(), select.POLLIN)
            poller.poll(deadline.ms_left())
        for node_id, entry in list(self._under_way.items()):
            if entry.connection.answered(entry.pending):
                del self._under_way[node_id]
                self._receive(node_id, entry)

    def _receive(self, node_id: int, entry: _UnderWay) -> None:
        asked = {key: self._positions[key] for key in entry.asked if key in self._positions}
        try:
            fetched = entry.connection.receive(entry.pending)
        except ClientError as error:
            self._sessions.pop(node_id, None)
            self._postpone(asked, error)
            return
        if node_id in self._sessions:
            self._sessions[node_id].take(fetched)
        if fetched.error is not ErrorCode.NONE:
            self._postpone(asked, broker_error(fetched.error, f"cannot fetch from broker {node_id}"))
            return
        self._backoff.reset()
        for partition in fetched.partitions:
            self._arrive(partition, entry.asked.get(partition.partition))

    def _arrive(self, fetched: FetchedPartition, asked: tuple[int, int] | None) -> None:
        key = fetched.partition
        position = self._positions.get(key)
        if position is None or asked != (position.fetch, position.generation):
            return
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset(key, position.fetch)
        elif fetched.error is not ErrorCode.NONE:
            if fetched.error in STALE_METADATA_CODES:
                self._cluster.forget(key.topic)
            self._postpone({key: position}, broker_error(fetched.error, f"cannot read {key}"))
        else:
            self.high_watermarks[key] = fetched.high_watermark
            records, position.fetch = whole_batches(fetched.records, position.fetch)
            if records:
                self._arrived.append(_Arrived(key, position.generation, records, position.fetch, fetched.aborted))
                self._arrived_bytes += len(records)

    def _reset(self, partition: TopicPartition, offset: int) -> None:
        policy = self.settings.out_of_range
        if policy is OutOfRange.ERROR:
            first = list_offsets(self._cluster, {partition: EARLIEST})[partition].offset
            last = list_offsets(self._cluster, {partition: LATEST})[partition].offset
            raise OffsetOutOfRangeError(partition, offset, first, last)
        target = EARLIEST if policy is OutOfRange.EARLIEST else LATEST
        isolation = self.settings.fetch.isolation
        self.seek(partition, list_offsets(self._cluster, {partition: target}, isolation)[partition].offset)

    def _postpone(self, positions: Mapping[TopicPartition, _Position], error: ClientError) -> None:
        """Try again later what may pass; raise what will not, and what has failed for too long."""
        if not error.retriable:
            raise error
        if self._backoff.attempts == 0:
            self._backoff = Backoff(self._cluster.settings)
        pause = self._backoff.next_pause_seconds()
        if pause >= self._backoff.deadline.seconds_left():
            raise error
        for position in positions.values():
            position.retry_at = time.monotonic() + pause


def _raise(error: ClientError) -> ConsumedRecord:
    raise error


def _consumed(partition: TopicPartition, record: Record, log_append_time: bool) -> ConsumedRecord:
    return ConsumedRecord(
        partition.topic,
        partition.partition,
        record.offset,
        record.timestamp,
        log_append_time,
        record.key,
        record.value,
        tuple(record.headers),
    )
