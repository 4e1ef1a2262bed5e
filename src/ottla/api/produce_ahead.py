"""Produce requests with much in them, one or several that came in one receive: one write per partition.

Theory of operation. A producer that has much to send has several requests on the way, each with a batch for each of
some partitions, and a receive brings one of them or more. To write each batch by itself costs the system more than the
bytes do, and to ask for each request what was asked for the one before it costs more than to look at all of them. So
what a producer's requests have in common is known (`wire.produce_lead`), what all of them bring for a partition is
gathered and written in one piece (`Partition.append_run`), and then they are answered in their order, now or when
followers have everything.

Whatever is not plain takes the ordinary way (`api.produce`): from the first request on that is not like the others, is
malformed, is refused in any part, is to be looked into, stamped or synced. And where one of the partitions could not be
written in one piece all requests take it; what was written of others is found there (`Appender.hand_over`).

What an editor must keep true:
- A batch is gathered only if serving its request would write it, at once, and everything of its partition that came
  before it. So whatever `api.produce` asks before it appends is asked here, permissions too once there are such.
- A request is gathered as a whole or not at all, and after one that is not none is.
- Requests are answered or served in the order in which they came, all of them before anything else happens
  (`server.frame_serving`), and then `close` is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ottla.api.context import Caller
from ottla.api.produce import ACKS_ALL, ACKS_LEADER, PRODUCE, ZSTD_SINCE, Unreplicated, context_of, hold_answers
from ottla.api.refusal import refusal
from ottla.model.errors import ApiError, OttlaError, StorageError
from ottla.model.ids import NO_TIMESTAMP
from ottla.runtime.opening import LOGS_INLINE_MAX
from ottla.wire.batch import TRANSACTIONAL_BIT, BatchHeader, unassign
from ottla.wire.produce import stored_layout
from ottla.wire.produce_lead import Lead, Piece, lead_of

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.api.deferred import Deferred
    from ottla.api.produce import Outcome
    from ottla.model.chunks import Chunks
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic

UNKNOWN_SKIPPED: Final = 16
"""Requests of a connection that are not looked into after one that has no lead: the next ones have none either."""


class Sender(Caller, Protocol):
    """A connection, as far as its requests are served here."""

    produce_lead: Lead | None
    """Of the last request that was looked into."""
    produce_lead_skipped: int


class Run:
    """The batches of one partition."""

    __slots__ = ("batches", "headers", "next_offset", "partition", "request", "start_offset")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.batches: list[memoryview] = []
        self.headers: list[BatchHeader] = []
        self.request = -1
        """The last one that has a batch here."""
        self.next_offset = self.start_offset = -1
        """The next batch to be answered for, and where the log begins."""


Gathered: TypeAlias = tuple[Lead, int, "HostedTopic", list[tuple[Run, int]]]
"""A request: what it has in common with others, its correlation id, topic, and where how many records of it went."""


class ProduceGroup:
    """Requests that are answered one after the other."""

    __slots__ = ("_caller", "_gathered", "_is_written", "_runs", "_services", "_unopened")

    def __init__(self, services: Services, caller: Sender, frames: Sequence[memoryview]) -> None:
        """Write what the requests bring, as far as that is plain."""
        self._services = services
        self._caller = caller
        self._gathered: list[Gathered] = []
        """By the number of the request; those that are missing are for the ordinary way."""
        self._runs: dict[Partition, Run] = {}
        self._unopened = 0
        """Logs that are to be opened; who needs many of them has to wait for that (`api.produce`)."""
        now_ms = services.world.clock.now_ms()
        for frame in frames:
            if not services.is_ready or not self._gather(frame, now_ms):
                break
        self._is_written = self._write_all() if self._gathered else False

    def _gather(self, frame: memoryview, now_ms: int) -> bool:
        """Put the batches of a request behind those of their partitions; False if not all of them are plain."""
        lead = self._caller.produce_lead
        correlation_id = None if lead is None else lead.match(frame)
        if lead is None or correlation_id is None:
            lead = lead_for(self._caller, frame)
            correlation_id = None if lead is None else lead.match(frame)
            if lead is None or correlation_id is None:
                return False
        topic = self._services.partitions.find(lead.topic)
        if topic is None or topic.is_internal or topic.is_rewritten or topic.config.timestamp_type_log_append:
            return False
        pieces = lead.pieces(frame)
        if pieces is None:
            return False
        places = self._place(pieces, topic, lead.acks, now_ms)
        if places is None:
            return False
        self._gathered.append((lead, correlation_id, topic, places))
        return True

    def _place(
        self, pieces: Sequence[Piece], topic: HostedTopic, acks: int, now_ms: int
    ) -> list[tuple[Run, int]] | None:
        """Where each batch went; None, and nothing is there, if serving the request would not write all of them."""
        led, runs, request, config = topic.led, self._runs, len(self._gathered), topic.config
        led_count, batch_bytes_max, behind = len(led), config.max_message_bytes, self._services.appender.tails
        timestamp_min = now_ms - config.timestamp_before_max_ms
        timestamp_max = now_ms + config.timestamp_after_max_ms
        needs_followers, min_insync = acks == ACKS_ALL, config.min_insync_replicas
        places: list[tuple[Run, int]] = []
        for index, batch, header in pieces:
            _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = header
            partition = led[index] if 0 <= index < led_count else None
            run = runs.get(partition) if partition is not None else None
            if run is None and partition is not None and partition not in behind:
                run = runs[partition] = Run(partition)
                if partition.log_or_none is None:
                    self._unopened += 1
            if (
                run is None
                or run.request == request
                or (needs_followers and not run.partition.is_sole and not is_in_sync(run.partition, min_insync))
                or attributes & TRANSACTIONAL_BIT
                or max_timestamp > timestamp_max
                or base_timestamp < timestamp_min
                or len(batch) > batch_bytes_max
            ):
                _take_back(places)
                return None
            run.request = request
            run.batches.append(batch)
            run.headers.append(header)
            places.append((run, count))
        if self._unopened > LOGS_INLINE_MAX:
            _take_back(places)
            return None
        return places

    def _write_all(self) -> bool:
        """Whether everything is in the log. If not, what is will be found by who serves the requests."""
        unwritten = [run for run in self._runs.values() if run.batches and not self._write(run)]
        if not unwritten:
            return True
        for run in self._runs.values():
            if run.next_offset >= 0:
                self._services.appender.hand_over(run.partition, run.next_offset, run.headers)
        return False

    def _write(self, run: Run) -> bool:
        partition, batches, headers, base_offset = run.partition, run.batches, run.headers, None
        try:
            if len(batches) == 1:
                base_offset = partition.append_next(batches[0], headers[0])
            else:
                records = sum([header[12] for header in headers])
                base_offset = partition.append_run(batches, headers, records, sum(map(len, batches)))
        except OttlaError as error:
            refused_write(self._services, error)
        if base_offset is None:
            for batch in batches:
                unassign(batch)
            return False
        run.next_offset = base_offset
        run.start_offset = (partition.log_or_none or partition.log).log_start_offset
        return True

    def has(self, number: int) -> bool:
        """Whether something of a request may be written already, so that it has to be answered or served now."""
        return number < len(self._gathered)

    def answers(self, count: int) -> bytes | None:
        """The answers to so many requests, each behind its size; None if one is to be served, or has to wait.

        Interpreted code makes them one by one.
        """
        return None

    def answer(self, number: int) -> Chunks | Deferred | None:
        """The answer to a request; None if the ordinary way has to serve it."""
        if not self._is_written or number >= len(self._gathered):
            return None
        lead, correlation_id, topic, places = self._gathered[number]
        stored, rest = stored_layout(lead.version)
        waits = lead.acks == ACKS_ALL
        outcomes: list[Outcome] = []
        unreplicated: list[Unreplicated] = []
        for run, count in places:
            partition, base_offset = run.partition, run.next_offset
            run.next_offset = end_offset = base_offset + count
            if waits and not partition.is_sole and partition.high_watermark < end_offset:
                unreplicated.append((lead.topic, outcomes, len(outcomes), partition, end_offset))
            outcomes.append(stored(partition.index, 0, base_offset, NO_TIMESTAMP, run.start_offset, rest))
        topic.counters.produce_requests += len(places)
        self._services.metrics.requests[PRODUCE] += 1
        if unreplicated:
            context = context_of(self._services, self._caller, lead.version, correlation_id)
            return hold_answers(context, lead.timeout_ms, [(lead.topic, outcomes)], unreplicated, failed=False)
        return [lead.answer(correlation_id, outcomes)]  # type: ignore[arg-type]

    def close(self) -> None:
        """All requests were answered or served, or never will be."""
        if not self._is_written:
            self._services.appender.forget_ahead()


def lead_for(caller: Sender, frame: memoryview) -> Lead | None:
    """What a request has in common with those that its sender will send; None if such are not served here."""
    if caller.produce_lead_skipped:
        caller.produce_lead_skipped -= 1
        return None
    lead = lead_of(frame)
    if lead is None or lead.acks not in (ACKS_LEADER, ACKS_ALL) or lead.version < ZSTD_SINCE:
        caller.produce_lead_skipped = UNKNOWN_SKIPPED
        return None
    caller.produce_lead = lead
    return lead


def refused_write(services: Services, error: OttlaError) -> None:
    """A directory that failed goes offline. Whoever asks is told what is wrong when the request is served."""
    if isinstance(error, StorageError):
        refusal(services, error)


def is_in_sync(partition: Partition, min_insync: int) -> bool:
    """Whether so many replicas are in sync as are to have what is written with acks=all."""
    try:
        partition.check_in_sync(min_insync)
    except ApiError:
        return False
    return True


def _take_back(places: list[tuple[Run, int]]) -> None:
    for run, _ in places:
        run.batches.pop()
        run.headers.pop()
