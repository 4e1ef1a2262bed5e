"""Several Produce requests that came in one receive: their batches go to the log in one write per partition.

Theory of operation. A producer that is faster than its broker has several requests on the way, each with a batch for
each of its partitions, and a receive brings them together. To write each of these batches by itself costs the system
more than the bytes do, and to serve each request by itself costs more than to look at all of them. So what all of them
bring for a partition is written first, in one piece (`Appender.write_ahead`). Then they are answered in their order. A
request whose batches are all written is answered here (`answer`), now or when followers have them. Any other one is
served by the ordinary way, which finds what was written, and says where, and does what is left to do.

What an editor must keep true:
- A batch is written ahead only if serving its request would write it, at once, and everything of its partition that
  came before it. So whatever `api.produce` asks before it appends is asked here, permissions too once there are such.
- Requests are answered or served in the order in which they came, all of them before anything else happens
  (`server.connection`), and then `close` is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.api.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    PRODUCE,
    ZSTD_SINCE,
    Outcome,
    Outcomes,
    Settled,
    Unreplicated,
    context_of,
    hold_answers,
)
from ottla.api.refusal import refusal
from ottla.model.errors import ApiError, MalformedMessageError, OttlaError, StorageError
from ottla.wire.batch import TRANSACTIONAL_BIT, check
from ottla.wire.headers import request_header_fields
from ottla.wire.produce import VERSION_MAX, ProduceRequest, encode_response, parse, stored_layout

if TYPE_CHECKING:
    from ottla.api.context import Caller, Services
    from ottla.api.deferred import Deferred
    from ottla.model.chunks import Chunks
    from ottla.runtime.appending import Appended
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic
    from ottla.wire.batch import BatchHeader
    from ottla.wire.fields import TopicKey


class Run:
    """The batches of one partition, and what its topic asks of them."""

    __slots__ = (
        "ahead",
        "batch_bytes_max",
        "batches",
        "headers",
        "is_open",
        "partition",
        "start_offset",
        "timestamp_max",
        "timestamp_min",
        "topic",
    )

    def __init__(self, topic: HostedTopic, partition: Partition, now_ms: int) -> None:
        config = topic.config
        self.topic = topic
        self.partition = partition
        self.batch_bytes_max = config.max_message_bytes
        self.timestamp_min = now_ms - config.timestamp_before_max_ms
        self.timestamp_max = now_ms + config.timestamp_after_max_ms
        self.batches: list[memoryview] = []
        self.headers: list[BatchHeader] = []
        self.is_open = not topic.is_rewritten and not config.timestamp_type_log_append
        """All that came for the partition so far is written as it came."""
        self.ahead: deque[Appended] | None = None
        """Those that are written and not answered for."""
        self.start_offset = 0

    def add(self, batch: memoryview | None, acks: int) -> bool:
        """Whether serving the request of this batch would write it as it is, at once, and behind those before it."""
        if batch is None or not self.is_open:
            return False
        try:
            if acks == ACKS_ALL and not self.partition.is_sole:
                self.partition.check_in_sync(self.topic.config.min_insync_replicas)
            header = check(batch)
        except ApiError:
            return False
        _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, _ = header
        if (
            len(batch) > self.batch_bytes_max
            or attributes & TRANSACTIONAL_BIT
            or max_timestamp > self.timestamp_max
            or base_timestamp < self.timestamp_min
        ):
            return False
        self.batches.append(batch)
        self.headers.append(header)
        return True


class Planned:
    """A request, and where its batches are."""

    __slots__ = ("acks", "correlation_id", "timeout_ms", "topics", "version")

    def __init__(self, version: int, correlation_id: int, acks: int, timeout_ms: int) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics: list[tuple[TopicKey, list[Run]]] = []


class ProduceGroup:
    """Requests that are answered one after the other."""

    __slots__ = ("_caller", "_planned", "_services")

    def __init__(self, services: Services, caller: Caller, frames: Sequence[memoryview]) -> None:
        """Write what the requests bring, as far as that is plain."""
        self._services = services
        self._caller = caller
        self._planned: list[Planned | None] = []
        """By the number of the request; None where the ordinary way has to serve it."""
        runs: dict[Partition, Run] = {}
        now_ms = services.world.clock.now_ms()
        for frame in frames:
            try:
                _, version, correlation_id, _, position = request_header_fields(frame)
                if not ZSTD_SINCE <= version <= VERSION_MAX:
                    break
                request = parse(frame, position, version)
            except MalformedMessageError:
                break
            if request.transactional_id is not None or request.acks not in (ACKS_LEADER, ACKS_ALL):
                break
            planned = Planned(version, correlation_id, request.acks, request.timeout_ms)
            self._planned.append(self._plan(planned, request, runs, now_ms))
        for run in runs.values():
            if run.batches:
                self._write(run)

    def _plan(
        self, planned: Planned, request: ProduceRequest, runs: dict[Partition, Run], now_ms: int
    ) -> Planned | None:
        """Put the batches of a request behind those of their partitions; None if not all of them are plain."""
        is_plain = True
        for key, partitions in request.topics:
            topic = self._services.partitions.find(key)
            if topic is None or topic.is_internal:
                is_plain = False
                continue
            led = topic.led
            found: list[Run] = []
            for index, records in partitions:
                partition = led[index] if 0 <= index < len(led) else None
                if partition is None:
                    is_plain = False
                    continue
                run = runs.get(partition)
                if run is None:
                    run = runs[partition] = Run(topic, partition, now_ms)
                if not run.add(records, request.acks):
                    is_plain = run.is_open = False
                found.append(run)
            planned.topics.append((key, found))
        return planned if is_plain else None

    def _write(self, run: Run) -> None:
        try:
            run.ahead = self._services.appender.write_ahead(run.partition, run.batches, run.headers)
        except OttlaError as error:
            if isinstance(error, StorageError):
                refusal(self._services, error)  # The directory goes offline. Who asks is told so when served.
        if run.ahead is not None:
            run.start_offset = (run.partition.log_or_none or run.partition.log).log_start_offset

    def answer(self, number: int) -> Chunks | Deferred | None:
        """The answer to a request; None if the ordinary way has to serve it."""
        planned = self._planned[number] if number < len(self._planned) else None
        if planned is None or not _is_written(planned):
            return None
        stored, rest = stored_layout(planned.version)
        outcomes: Outcomes = []
        unreplicated: list[Unreplicated] = []
        for key, runs in planned.topics:
            produced: list[Outcome] = []
            for run in runs:
                partition = run.partition
                run.topic.counters.produce_requests += 1
                base_offset, last_offset, append_time_ms, _ = run.ahead.popleft()  # type: ignore[union-attr]
                if planned.acks == ACKS_ALL and not partition.is_sole and partition.high_watermark <= last_offset:
                    unreplicated.append((key, produced, len(produced), partition, last_offset + 1))
                produced.append(stored(partition.index, 0, base_offset, append_time_ms, run.start_offset, rest))
            outcomes.append((key, produced))
        self._services.metrics.requests[PRODUCE] += 1
        if unreplicated:
            context = context_of(self._services, self._caller, planned.version, planned.correlation_id)
            return hold_answers(context, planned.timeout_ms, outcomes, unreplicated, failed=False)
        settled: list[tuple[TopicKey, list[Settled]]] = outcomes  # type: ignore[assignment]
        return [encode_response(planned.version, planned.correlation_id, settled)]

    def close(self) -> None:
        """All requests were answered or served, or never will be."""
        self._services.appender.forget_ahead()


def _is_written(planned: Planned) -> bool:
    """Whether all that a request brought is in the log; one that names a partition twice is left to the other way."""
    seen: set[Run] = set()
    for _, runs in planned.topics:
        for run in runs:
            if not run.ahead or run in seen:
                return False
            seen.add(run)
    return True
