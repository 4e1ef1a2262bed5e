"""An idempotent producer: a lane for each partition, several batches under way, retries with the same sequence numbers.

Theory of operation. A lane holds batches in their order. Up to a window of them are under way at a time, on one
connection, which the lanes to one broker share. The answers are taken in order, and each that is good lets the next
batch go. After one that is not nothing more is sent until the others are answered. What is not acknowledged is then
sent again, in the same order and with the same numbers, to whoever leads. Nothing is given up while the run lasts, as
with an endless delivery time-out, except by chance: then the outcome is unknown, and the lane goes on with a new
producer id.

Now and then a producer has many batches at once, for one partition or for several, and the more of them the longer it
waits before.

What an editor must keep true: no more than a window lies between the first batch that is not acknowledged and the last
that was sent. A broker knows the last five of a producer, no more, when one of them comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.produce import ProducedPartition
from ottla.wire.records import Record, build_batch
from simulator.clients.cluster import NoLeader
from simulator.clients.connection import Gone
from simulator.clients.produce_sender import Answer, ProduceSender
from simulator.history import Outcome, Place, Send, key_of

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.clients.connection import ClientConnection
    from simulator.history import History

REST_SHARE: Final = 0.03
REST_SECONDS: Final = 20.0
"""Now and then a producer has nothing to send for a while: faults meet busy clusters, and quiet ones."""
STATE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Batch:
    """Some values that travel together."""

    __slots__ = ("attempts", "encoded", "is_under_way", "sends")

    def __init__(self, sends: list[Send], encoded: bytes) -> None:
        self.sends = sends
        self.encoded = encoded
        self.attempts = 0
        self.is_under_way = False


def encode_batch(
    cluster: ClusterClient, sends: list[Send], producer: tuple[int, int], sequence: int, *, attributes: int = 0
) -> bytes:
    """The values of a batch, padded to sizes drawn by chance so that sectors and segments end anywhere."""
    now_ms = 1_700_000_000_000 + cluster.room.timeline.now_us // 1000
    records = [
        Record(number, now_ms, b"%d" % key_of(send.value), b"%d " % send.value + bytes(cluster.rng.randrange(120)))
        for number, send in enumerate(sends)
    ]
    return bytes(
        build_batch(
            records,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            attributes=attributes,
        )
    )


class Lane:
    """The way to one partition."""

    def __init__(self, producer: IdempotentProducer, place: Place) -> None:
        self._producer = producer
        self._cluster = producer.cluster
        self._history = producer.history
        self.place = place
        self.waiting: deque[Batch] = deque()
        self._identity = (-1, -1)
        self._sequence = 0
        self._order = 0
        self._acknowledged_order = -1
        """Of the last value acknowledged to this producer id, -1 if none was."""
        self._something = asyncio.Event()

    async def send(self, count: int) -> None:
        """Queue a batch with new values."""
        if self._identity[0] < 0:
            self._identity, self._sequence = await self._producer.new_identity(), 0
        sends = []
        for _ in range(count):
            self._order += 1
            sends.append(self._history.send(self.place, f"{self._producer.name}/{self._identity[0]}", self._order))
        self.waiting.append(Batch(sends, encode_batch(self._cluster, sends, self._identity, self._sequence)))
        self._sequence += count
        self._something.set()

    async def run(self) -> None:
        """Deliver what is queued, for ever."""
        attempt = 0
        while True:
            while not self.waiting:
                self._something.clear()
                await self._something.wait()
            try:
                connection = await self._cluster.leader_of(self.place)
                moved = await self._deliver(self._producer.sender_to(connection))
            except (Gone, NoLeader):
                moved = True
            attempt = attempt + 1 if moved else 0
            if moved:
                await self._cluster.leader_moved(self.place, attempt)

    async def _deliver(self, sender: ProduceSender) -> bool:
        """Send until nothing waits or something fails; whether the leader may be another now."""
        moved = False
        under_way: deque[tuple[Batch, Answer]] = deque()
        while True:
            if not moved:
                self._fill(under_way, sender)
            if not under_way:
                return moved
            batch, answer = under_way.popleft()
            try:
                produced = await sender.wait(answer)
            except Gone:
                moved = True
                continue
            finally:
                batch.is_under_way = False
            if batch in self.waiting:  # Else it was given up meanwhile.
                moved = self._answered(batch, produced, is_first=batch is self.waiting[0]) or moved

    def _fill(self, under_way: deque[tuple[Batch, Answer]], sender: ProduceSender) -> None:
        """Have a window of batches under way, as far as there are so many."""
        target = self._cluster.topic_ids[self.place.topic], self.place.partition
        for batch in self.waiting:
            if len(under_way) >= self._producer.window:
                break
            if not batch.is_under_way:
                batch.is_under_way = True
                batch.attempts += 1
                under_way.append((batch, sender.put(target, batch.encoded)))

    def _answered(self, batch: Batch, answer: ProducedPartition, *, is_first: bool) -> bool:
        """What one answer means; whether the batch must be sent again."""
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.waiting.remove(batch)
            self._acknowledged_order = batch.sends[-1].order
            for number, send in enumerate(batch.sends):
                known = code is ErrorCode.NONE and answer.base_offset >= 0
                self._history.settle(send, Outcome.OK, answer.base_offset + number if known else -1)
            return False
        if code in STATE_LOST and is_first:
            # A broker takes any sequence as a producer's first, so one that was refused may come too late for good.
            if self._acknowledged_order == batch.sends[0].order - 1:
                self._producer.state_lost(self.place, batch, code)
            self.give_up()
        return True

    def give_up(self) -> None:
        """Nobody knows whether the broker has what was sent; begin with a new id."""
        for batch in self.waiting:
            for send in batch.sends:
                self._history.settle(send, Outcome.UNKNOWN if batch.attempts else Outcome.FAILED)
        self.waiting.clear()
        self._identity = (-1, -1)
        self._acknowledged_order = -1


class IdempotentProducer:
    """A producer with a lane for each of its partitions, and a stream of new values."""

    def __init__(self, cluster: ClusterClient, history: History, places: list[Place], *, window: int) -> None:
        self.cluster = cluster
        self.history = history
        self.name = cluster.name
        self.window = window
        self.places = places
        self.lanes: list[Lane] = []
        self.stopped = False
        self._senders: dict[ClientConnection, ProduceSender] = {}

    async def run(self, seconds_between: float, batch_records_max: int, burst_share: float) -> None:
        """Send until told to stop."""
        rng = self.cluster.rng
        self.lanes = [Lane(self, place) for place in self.places]
        for lane in self.lanes:
            self.cluster.loop.start(lane.run())
        while not self.stopped:
            count = rng.randint(2, 2 * self.window) if rng.random() < burst_share else 1
            await asyncio.sleep(rng.expovariate(1 / (seconds_between * count)))
            if rng.random() < REST_SHARE * count:
                await asyncio.sleep(rng.expovariate(1 / REST_SECONDS))
            lanes = self.lanes if rng.random() < 0.5 else [rng.choice(self.lanes)]
            for _ in range(count):
                lane = rng.choice(lanes)
                if len(lane.waiting) < 50 and not self.stopped:
                    await lane.send(rng.randint(1, batch_records_max))
            if rng.random() < 0.001:
                rng.choice(lanes).give_up()

    def sender_to(self, connection: ClientConnection) -> ProduceSender:
        """The one of a connection, which all lanes share."""
        found = self._senders.get(connection)
        if found is None:
            self._senders = {known: sender for known, sender in self._senders.items() if known.is_open}
            found = self._senders[connection] = ProduceSender(self.cluster.loop, connection)
        return found

    @property
    def is_settled(self) -> bool:
        """Whether everything that was sent has an outcome."""
        return not any(lane.waiting for lane in self.lanes)

    async def new_identity(self) -> tuple[int, int]:
        attempt = 0
        while True:
            try:
                connection = await self.cluster.any_broker()
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                answer = await connection.request(request, InitProducerIdResponse, timeout_ms=5000)
                if not answer.error_code:
                    return answer.producer_id, answer.producer_epoch
            except Gone:
                pass
            attempt += 1
            await self.cluster.back_off(attempt)

    def state_lost(self, place: Place, batch: Batch, code: ErrorCode) -> None:
        """The broker does not know what it acknowledged to this producer."""
        text = f"{self.name} at {place}: {code.name} for values {batch.sends[0].value}.. (attempt {batch.attempts})"
        self.cluster.room.findings.add("a producer's acknowledged batches are known", text)
