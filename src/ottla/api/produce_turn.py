"""The short Produce requests of one turn of the loop: written together, then answered.

Theory of operation. Many producers that send one small batch at a time cost more in system calls and bookkeeping than
in bytes. So a short request for one partition is not served when it arrives: its batch is checked and copied behind
those that the same turn brought for its partition (`take`), and when the turn ends each partition's are written in one
piece, and everybody is answered (`settle`). The end of a turn is microseconds away: it ends when all that was readable
as it began was read. Where turns bring one request each, as from a single client, it is written and answered at once.

Where a request goes is looked up by the bytes that say so (`RequestShape`), so one that looks like an earlier one is
not parsed. One that does not look like any is served by the ordinary way and remembered, and the next one is known.

Whatever is not plain takes the ordinary way (`api.produce`), either at once, when `take` says no, or at the end of the
turn, when a run cannot be written in one piece: then each of its requests is served as if it had come just now. So
every refusal, and every batch that is a duplicate, is transactional, rewritten, stamped or synced, has one home.

What an editor must keep true:
- `take` changes nothing unless it says yes. It says yes only to requests that `api.produce` would have stored by then.
- Requests of one connection are settled before anything else of it is dispatched, and nothing is taken while an older
  answer is owed to it. So appends and answers keep its order. (`server.connection`)
- What was not written together is served in the order of arrival, so a run keeps the order of its partition.
- Who checks permissions asks for each request: targets are shared by all clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from ottla.api.context import Caller
from ottla.api.deferred import Deferred
from ottla.api.produce import ACKS_ALL, ACKS_LEADER, PRODUCE, ZSTD_SINCE, context_of, hold_answer
from ottla.api.refusal import refusal
from ottla.model.errors import ApiError, OttlaError, StorageError
from ottla.model.ids import NO_TIMESTAMP
from ottla.wire.batch import TRANSACTIONAL_BIT, BatchHeader, check, unassign
from ottla.wire.produce import VERSION_MAX, answer_layout, encode_one
from ottla.wire.produce_shape import RequestShape, Understood, understand

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic
    from ottla.wire.fields import TopicKey

TAKEN_BYTES_MAX: Final = 4096
"""Of a request: where bytes are what costs, a copy of them saves nothing."""
TURN_REQUESTS_MAX: Final = 256
"""Taken before they are settled in the middle of a turn."""
ALONE_TURNS: Final = 8
"""After so many turns of one request each there seems to be nobody to wait for."""
TARGETS_MAX: Final = 4096
UNKNOWN_SKIPPED: Final = 16
"""Requests of a connection that are not looked into after one that was: clients that never repeat themselves."""
FLUSH_MESSAGES_NEVER: Final = 1 << 62


class Asker(Caller, Protocol):
    """A connection, as far as its requests are taken here."""

    produce_shape: RequestShape | None
    """Of the last request that was looked into."""
    produce_skipped: int
    taken: int
    """Requests that were taken and not settled."""

    def settled(self, data: bytes) -> None:
        """The answer, its size in front, to the oldest request that was taken."""

    def settled_later(self, answer: Deferred) -> None:
        """The same, where it has to wait."""

    def serve_taken(self, frame: memoryview) -> None:
        """Serve a request that was taken by the ordinary way."""

    def taken_failed(self, error: Exception) -> None:
        """There is no answer to a request that was taken."""


class Target:
    """A partition as requests name it, what its topic allows, and what the answer to each of them has in common."""

    __slots__ = (
        "acks",
        "batch_bytes_max",
        "config",
        "index",
        "is_plain",
        "key",
        "layout",
        "led",
        "name",
        "timeout_ms",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "topic",
        "version",
    )

    def __init__(self, found: Understood, topic: HostedTopic) -> None:
        self.topic = topic
        self.led = topic.led
        """Emptied when the topic goes, so nothing of it is kept here."""
        self.index = found.index
        self.key: TopicKey = found.topic
        self.version = found.version
        self.acks = found.acks
        self.timeout_ms = found.timeout_ms
        self.name = found.target
        self.layout = answer_layout(found.version, found.topic, found.index)
        self.adapt()

    def adapt(self) -> None:
        """The topic has another config."""
        config = self.config = self.topic.config
        self.batch_bytes_max = config.max_message_bytes
        self.timestamp_before_max_ms = config.timestamp_before_max_ms
        self.timestamp_after_max_ms = config.timestamp_after_max_ms
        self.is_plain = (
            not self.topic.is_rewritten
            and not config.timestamp_type_log_append
            and config.flush_messages >= FLUSH_MESSAGES_NEVER
        )
        """Batches are written as they come, and nobody waits until they are synced."""


class Run:
    """The batches of one partition that a turn has brought, one behind the other."""

    __slots__ = (
        "batches",
        "error",
        "headers",
        "is_written",
        "next_offset",
        "partition",
        "records",
        "served",
        "served_bytes",
        "start_offset",
        "topic",
    )

    def __init__(self, topic: HostedTopic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self.batches = bytearray()
        self.headers: list[BatchHeader] = []
        self.records = 0
        self.is_written = False
        self.error: Exception | None = None
        self.next_offset = self.start_offset = 0
        """The next batch to be answered for, and where the log begins."""
        self.served = self.served_bytes = 0
        """How many batches were handed to the ordinary way."""

    def write(self) -> None:
        partition = self.partition
        base_offset = partition.append_run(self.batches, self.headers, self.records, len(self.batches))
        if base_offset is not None:
            self.is_written = True
            self.next_offset = base_offset
            self.start_offset = (partition.log_or_none or partition.log).log_start_offset
            self.topic.counters.produce_requests += len(self.headers)

    def next_frame(self, shape: RequestShape, target: bytes, correlation_id: int) -> memoryview:
        """The next request as it came, for the ordinary way."""
        if self.error is not None:
            raise self.error
        size = self.headers[self.served].size
        batch = self.batches[self.served_bytes : self.served_bytes + size]
        unassign(batch)  # It may have been given one before it was not written.
        self.served += 1
        self.served_bytes += size
        return memoryview(bytearray(shape.build(correlation_id, target, batch)))


class ProduceTurn:
    """What is taken and not settled."""

    __slots__ = ("_on_first", "_runs", "_services", "_targets", "_turns_of_one", "requests", "taken")

    def __init__(self, services: Services, on_first: Callable[[], None]) -> None:
        self._services = services
        self._on_first = on_first
        """Sees to it that `end` is called when the turn ends."""
        self._turns_of_one = 0
        """How many turns there were lately that brought one request."""
        self.requests = 0
        """Taken in this turn."""
        self._targets: list[dict[bytes, Target]] = [{} for _ in range(VERSION_MAX + 1)]
        """By version, and by the bytes that name them."""
        self._runs: dict[Partition, Run] = {}
        self.taken: list[tuple[Asker, RequestShape, Target, Run, int, int]] = []
        """In the order of arrival; the numbers are the correlation id and the count of records."""

    def take(self, asker: Asker, view: memoryview, start: int, stop: int) -> bool:
        """Whether the Produce request that lies there was taken; if not, it is to be served by the ordinary way."""
        shape = asker.produce_shape
        if shape is None or (found := shape.read(view, start, stop)) is None:
            return self._look_into(asker, view[start:stop])
        correlation_id, name, batch = found
        target = self._targets[shape.version].get(name)
        if target is None:
            return self._look_into(asker, view[start:stop])
        topic, index, led = target.topic, target.index, target.led
        if target.config is not topic.config:
            target.adapt()
        partition = led[index] if index < len(led) else None
        if partition is None or not target.is_plain:
            return _unfit(asker)
        run, now_ms = self._runs.get(partition), self._services.world.clock.now_ms()
        if run is None and (partition.log_or_none is None or partition in self._services.appender.tails):
            return False
        try:
            header = check(batch)
            if target.acks == ACKS_ALL and not partition.is_sole:
                partition.check_in_sync(topic.config.min_insync_replicas)
        except ApiError:
            return False
        _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = header
        if (
            len(batch) > target.batch_bytes_max
            or attributes & TRANSACTIONAL_BIT
            or max_timestamp - now_ms > target.timestamp_after_max_ms
            or now_ms - base_timestamp > target.timestamp_before_max_ms
        ):
            return False
        if run is None:
            if not self.requests and self._turns_of_one >= ALONE_TURNS and partition.is_sole:
                return self._store_alone(asker, target, partition, correlation_id, batch, header, now_ms)
            run = self._runs[partition] = Run(topic, partition)
        run.batches += batch
        run.headers.append(header)
        run.records += count
        asker.taken += 1
        self.taken.append((asker, shape, target, run, correlation_id, count))
        self.requests += 1
        if self.requests == 1:
            self._on_first()
        elif len(self.taken) >= TURN_REQUESTS_MAX:
            self.settle()
        return True

    def _store_alone(
        self,
        asker: Asker,
        target: Target,
        partition: Partition,
        correlation_id: int,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
    ) -> bool:
        """The first request of a turn, at once: lately there was never a second one to write it with."""
        self.requests = 1
        self._on_first()
        try:
            base_offset, _, append_time_ms, _ = partition.append(batch, header, now_ms)
        except OttlaError as error:
            self._note_failure(error)
            unassign(batch)
            return False
        self._services.metrics.requests[PRODUCE] += 1
        target.topic.counters.produce_requests += 1
        start_offset = (partition.log_or_none or partition.log).log_start_offset
        pack, size, before, after = target.layout
        asker.taken += 1
        asker.settled(pack(size, correlation_id, before, base_offset, append_time_ms, start_offset, after))
        return True

    def end(self) -> None:
        """The turn is over."""
        self._turns_of_one = self._turns_of_one + 1 if self.requests == 1 else 0
        self.requests = 0
        if self.taken:
            self.settle()

    def settle(self) -> None:
        """Write what was taken, and answer."""
        taken, self.taken = self.taken, []
        runs, self._runs = self._runs, {}
        for run in runs.values():
            self._write(run)
        for asker, shape, target, run, correlation_id, count in taken:
            try:
                if not run.is_written:
                    asker.serve_taken(run.next_frame(shape, target.name, correlation_id))
                    continue
                base_offset = run.next_offset
                run.next_offset = end_offset = base_offset + count
                if target.acks == ACKS_LEADER or run.partition.is_sole or run.partition.high_watermark >= end_offset:
                    pack, size, before, after = target.layout
                    asker.settled(pack(size, correlation_id, before, base_offset, -1, run.start_offset, after))
                else:
                    self._hold(asker, target, run, correlation_id, base_offset, end_offset)
            except Exception as error:
                asker.taken_failed(error)

    def _write(self, run: Run) -> None:
        try:
            run.write()
        except OttlaError as error:
            self._note_failure(error)
        except Exception as error:
            run.error = error
        if run.is_written:
            self._services.metrics.requests[PRODUCE] += len(run.headers)

    def _note_failure(self, error: OttlaError) -> None:
        """Nothing was written, and the ordinary way will say why. A directory that failed goes offline before that."""
        if isinstance(error, StorageError):
            refusal(self._services, error)

    def _hold(
        self, asker: Asker, target: Target, run: Run, correlation_id: int, base_offset: int, end_offset: int
    ) -> None:
        """Answer when the followers have it."""
        context = context_of(self._services, asker, target.version, correlation_id)
        answer = encode_one(
            target.version, correlation_id, target.key, target.index, base_offset, NO_TIMESTAMP, run.start_offset
        )
        held = hold_answer(context, run.partition, target.key, answer, end_offset, target.timeout_ms)
        asker.settled_later(held)

    def _look_into(self, asker: Asker, frame: memoryview) -> bool:
        """See where a request goes that was not known, for the next one like it. It is not taken itself."""
        if asker.produce_skipped:
            asker.produce_skipped -= 1
            return False
        asker.produce_skipped = UNKNOWN_SKIPPED
        found = understand(frame)
        if found is None or found.acks not in (ACKS_LEADER, ACKS_ALL) or not ZSTD_SINCE <= found.version <= VERSION_MAX:
            return False
        topic = self._services.partitions.find(found.topic)
        if topic is None or topic.is_internal or not 0 <= found.index < len(topic.led):
            return False
        targets = self._targets[found.version]
        if len(targets) >= TARGETS_MAX:
            targets.clear()
        asker.produce_shape = found.shape
        targets[found.target] = Target(found, topic)
        return False


def _unfit(asker: Asker) -> bool:
    """Do not ask again soon."""
    asker.produce_shape = None
    asker.produce_skipped = UNKNOWN_SKIPPED
    return False
