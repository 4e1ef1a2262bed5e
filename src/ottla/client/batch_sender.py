"""Carries ready batches to the leaders of their partitions, and says what became of them.

Theory of operation. `submit` queues a batch behind the others of its partition. `poll` does whatever can be done at
the moment: it sends one request to each leader that may take one, with the first batch of each of its partitions, and
takes the answers that have come. Of a partition only one batch is under way at a time, so that batches arrive in
order whatever fails and is repeated; requests for different partitions overlap. Nothing happens outside of a call:
there is no thread.

A batch is repeated after an error that may pass until `delivery_timeout_ms` is over. With a `ProducerIdentity` the
broker drops what it has already; without one, a batch whose answer was lost may be stored twice.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection, Pending
from ottla.client.deadline import Backoff, Deadline
from ottla.client.errors import STALE_METADATA_CODES, BrokerError, ClientError, DeliveryError, broker_error, error_code
from ottla.client.producer_identity import ProducerIdentity
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.wire import produce
from ottla.wire.fields import TopicKey
from ottla.wire.produce import ProducedPartition
from ottla.wire.produce_client import ProduceResponse, encode_request, parse_response

PRODUCE_KEY: Final = 0
ALL_IN_SYNC: Final = -1
"""As `acks`: the answer comes when every replica that is in sync has the batch."""
REQUEST_BYTES_MAX: Final = 8 << 20
_WAIT_STEP_MS_MAX: Final = 1_000


class Delivery(NamedTuple):
    """What became of a batch. Without an error its records are at `base_offset` and the offsets that follow it."""

    partition: TopicPartition
    record_count: int
    base_offset: int
    timestamp_ms: int
    """The broker's time where the topic uses LogAppendTime, else -1."""
    error: ClientError | None


class _Batch:
    __slots__ = ("deadline", "partition", "record_count", "records", "sent")

    def __init__(self, partition: TopicPartition, records: bytearray, record_count: int, deadline: Deadline) -> None:
        self.partition = partition
        self.records = records
        self.record_count = record_count
        self.deadline = deadline
        self.sent = False


class _Lane:
    """The batches of one partition, in order."""

    __slots__ = ("backoff", "last_error", "queue", "retry_at", "under_way")

    def __init__(self, backoff: Backoff) -> None:
        self.queue: deque[_Batch] = deque()
        self.backoff = backoff
        self.retry_at = 0.0
        self.under_way = False
        self.last_error: ClientError | None = None


class _Request(NamedTuple):
    connection: Connection
    pending: Pending[ProduceResponse]
    batches: dict[TopicPartition, _Batch]
    topic_names: dict[TopicKey, str]


class BatchSender:
    """Sends batches; `on_delivery` is called, from inside `poll`, once for each."""

    def __init__(
        self,
        cluster: Cluster,
        on_delivery: Callable[[Delivery], None],
        *,
        acks: int = ALL_IN_SYNC,
        identity: ProducerIdentity | None = None,
        delivery_timeout_ms: int = 120_000,
        in_flight_max: int = 5,
        transactional_id: str | None = None,
        before_first: Callable[[list[TopicPartition]], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._on_delivery = on_delivery
        self._acks = acks
        self._identity = identity
        self._delivery_timeout_ms = delivery_timeout_ms
        self._in_flight_max = in_flight_max
        self._transactional_id = transactional_id
        self._before_first = before_first
        """Called with partitions before anything is sent to them for the first time; a ClientError puts it off."""
        self._begun: set[TopicPartition] = set()
        self.version_max = produce.VERSION_MAX
        """The newest version of Produce to use."""
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._requests: list[_Request] = []
        self.queued_bytes = 0
        """Bytes of batches whose fate is not known yet."""

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return self.queued_bytes == 0

    def submit(self, partition: TopicPartition, records: bytearray, record_count: int) -> None:
        """Queue exactly one batch for the partition. The buffer belongs to the sender from now on."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(Backoff(self._cluster.settings))
        lane.queue.append(_Batch(partition, records, record_count, Deadline(self._delivery_timeout_ms)))
        self.queued_bytes += len(records)

    def poll(self, wait_ms: float = 0) -> None:
        """Send what can be sent, take what has come; wait up to `wait_ms` for an answer if there is none yet."""
        self._expire()
        self._send_ready()
        self._await_answer(wait_ms)
        for request in [request for request in self._requests if request.connection.answered(request.pending)]:
            self._take(request)
        self._send_ready()

    def flush(self, deadline: Deadline | None = None) -> None:
        """Return when the fate of every batch is known, or when the deadline has passed."""
        while not self.idle and not (deadline is not None and deadline.passed()):
            left = _WAIT_STEP_MS_MAX if deadline is None else min(deadline.ms_left(), _WAIT_STEP_MS_MAX)
            self.poll(left)

    # Sending

    def _send_ready(self) -> None:
        for node_id, batches in self._ready_by_leader().items():
            for group in _groups(batches):
                try:
                    connection = self._cluster.connection(node_id)
                    if connection.in_flight >= self._in_flight_max:
                        break
                    self._send(connection, group)
                except ClientError as error:
                    self._repeat(group, error)

    def _ready_by_leader(self) -> dict[int, list[_Batch]]:
        now = time.monotonic()
        ready: dict[int, list[_Batch]] = {}
        for partition, lane in self._lanes.items():
            if not lane.queue or lane.under_way or lane.retry_at > now:
                continue
            try:
                leader = self._cluster.leader(partition)
            except ClientError as error:
                self._repeat([lane.queue[0]], error)
            else:
                ready.setdefault(leader.node_id, []).append(lane.queue[0])
        return ready

    def _send(self, connection: Connection, batches: list[_Batch]) -> None:
        self._begin([batch.partition for batch in batches])
        keys = {name: self._topic_key(name) for name in {batch.partition.topic for batch in batches}}
        by_id = all(key != name for name, key in keys.items())
        highest = min(self.version_max, produce.VERSION_MAX if by_id else produce.TOPIC_ID_SINCE - 1)
        version = connection.version(PRODUCE_KEY, "Produce", produce.VERSION_MIN, highest)
        if version < produce.TOPIC_ID_SINCE:
            keys = {name: name for name in keys}
        topics: dict[TopicKey, list[tuple[int, bytearray]]] = {}
        for batch in batches:
            self._stamp(batch)
            topics.setdefault(keys[batch.partition.topic], []).append((batch.partition.partition, batch.records))
        body = encode_request(
            version,
            list(topics.items()),
            acks=self._acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            transactional_id=self._transactional_id,
        )
        if self._acks == 0:
            connection.send_unanswered(PRODUCE_KEY, version, body)
            for batch in batches:
                self._finish(batch, Delivery(batch.partition, batch.record_count, -1, -1, None))
            return
        pending = connection.send_raw(PRODUCE_KEY, version, body, lambda answer: parse_response(answer, 0, version))
        for batch in batches:
            self._lanes[batch.partition].under_way = True
        by_partition = {batch.partition: batch for batch in batches}
        names = {key: name for name, key in keys.items()}
        self._requests.append(_Request(connection, pending, by_partition, names))

    def _begin(self, partitions: list[TopicPartition]) -> None:
        new = [partition for partition in partitions if partition not in self._begun]
        if new and self._before_first is not None:
            self._before_first(new)
        self._begun.update(new)

    def _topic_key(self, name: str) -> TopicKey:
        topic_id = self._cluster.topic(name).topic_id
        return name if topic_id == ZERO_UUID else topic_id

    def _stamp(self, batch: _Batch) -> None:
        if self._identity is not None and not batch.sent:
            self._identity.stamp(batch.partition, batch.records, batch.record_count)
        batch.sent = True

    # Answers

    def _await_answer(self, wait_ms: float) -> None:
        if wait_ms <= 0 or any(request.connection.answered(request.pending) for request in self._requests):
            return
        pause_ms = min(wait_ms, self._ms_to_next_retry())
        if not self._requests:
            if not self.idle:
                time.sleep(pause_ms / 1000)
            return
        poller = select.poll()
        for fileno in {request.connection.fileno() for request in self._requests}:
            poller.register(fileno, select.POLLIN)
        poller.poll(pause_ms)

    def _ms_to_next_retry(self) -> float:
        waiting = [lane.retry_at for lane in self._lanes.values() if lane.queue and not lane.under_way]
        return max((min(waiting) - time.monotonic()) * 1000, 1.0) if waiting else float("inf")

    def _take(self, request: _Request) -> None:
        self._requests.remove(request)
        for partition in request.batches:
            self._lanes[partition].under_way = False
        try:
            answer = request.connection.receive(request.pending)
        except ClientError as error:
            self._repeat(request.batches.values(), error)
            return
        unanswered = dict(request.batches)
        for key, outcomes in answer.topics:
            for outcome in outcomes:
                partition = TopicPartition(request.topic_names.get(key, ""), outcome.index)
                batch = unanswered.pop(partition, None)
                if batch is not None:
                    self._settle(batch, outcome)
        for batch in unanswered.values():
            subject = f"the broker at {request.connection.address} said nothing about {batch.partition}"
            self._repeat([batch], broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, subject))

    def _settle(self, batch: _Batch, outcome: ProducedPartition) -> None:
        code = error_code(outcome.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._lanes[batch.partition].backoff.reset()
            delivery = Delivery(
                batch.partition, batch.record_count, outcome.base_offset, outcome.log_append_time_ms, None
            )
            self._finish(batch, delivery)
            return
        subject = f"cannot write to {batch.partition}"
        self._repeat([batch], broker_error(outcome.error_code, subject, _refusal(batch, outcome)))

    # Failures

    def _repeat(self, batches: Iterable[_Batch], error: ClientError) -> None:
        """Try again later what may still succeed, and give up the rest."""
        for batch in batches:
            lane = self._lanes[batch.partition]
            lane.under_way = False
            lane.last_error = error
            if isinstance(error, BrokerError) and error.code in STALE_METADATA_CODES:
                self._cluster.forget(batch.partition.topic)
            pause = lane.backoff.next_pause_seconds()
            if not _may_pass(error) or pause >= batch.deadline.seconds_left():
                self._give_up(batch, error)
            else:
                lane.retry_at = time.monotonic() + pause

    def _expire(self) -> None:
        """Give up batches that waited for too long without being under way."""
        for lane in self._lanes.values():
            while lane.queue and not lane.under_way and lane.queue[0].deadline.passed():
                expired = DeliveryError(f"no answer for {lane.queue[0].partition} in time", lane.queue[0].record_count)
                self._give_up(lane.queue[0], lane.last_error or expired)

    def _give_up(self, batch: _Batch, error: ClientError) -> None:
        if batch.sent and self._identity is not None:
            self._identity.forget()
        self._finish(batch, Delivery(batch.partition, batch.record_count, -1, -1, error))

    def _finish(self, batch: _Batch, delivery: Delivery) -> None:
        queue = self._lanes[batch.partition].queue
        queue.remove(batch)
        self.queued_bytes -= len(batch.records)
        self._on_delivery(delivery)


def _refusal(batch: _Batch, outcome: ProducedPartition) -> str | None:
    """The broker's own sentence: that on the first record at fault, where it names one."""
    for index, message in outcome.record_errors:
        if message:
            return f"record {index} of the batch's {batch.record_count}: {message}"
    return outcome.error_message


def _may_pass(error: ClientError) -> bool:
    """A topic that is not known may be so new that this broker has not heard of it."""
    unknown = isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return unknown or error.retriable


def _groups(batches: list[_Batch]) -> Iterator[list[_Batch]]:
    """Batches of one leader, cut into requests of a bearable size."""
    group: list[_Batch] = []
    size = 0
    for batch in batches:
        if group and size + len(batch.records) > REQUEST_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(batch)
        size += len(batch.records)
    if group:
        yield group
