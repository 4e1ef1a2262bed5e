"""A transactional producer: writes to several partitions, then commits or aborts; fenced and timed out now and then.

Theory of operation. It speaks as clients of the second transaction protocol do: a produce request adds its partition,
the end of a transaction brings the epoch of the next one. Requests are repeated with the same numbers until something
is certain. A transaction is known as aborted while no request to commit it has left; once one has, it is committed,
or unknown. Several producers may share a transactional id: each takes it over from the other, which must then be
fenced.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode
from ottla.wire.batch import TRANSACTIONAL_BIT
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.produce_client import encode_request, parse_response
from simulator.clients.cluster import TRANSACTION, NoLeader
from simulator.clients.connection import Gone
from simulator.clients.produce_sender import PRODUCE_KEY, PRODUCE_VERSION, REQUEST_TIMEOUT_MS
from simulator.clients.producer import REST_SECONDS, REST_SHARE, encode_batch
from simulator.clients.progress import Progress
from simulator.clients.reader import Reader
from simulator.history import Outcome, Place, Send, Transaction

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.history import History

PATIENCE_SECONDS: Final = 25.0
TRANSACTION_TIMEOUT_MS: Final = 15_000
LATE_SHARE: Final = 0.1
READS_SHARE: Final = 0.15
OFFSETS_SHARE: Final = 0.3
LATE_SECONDS_MAX: Final = 5.0
FINAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""After one of these the transaction is over for this producer."""


class Over(Exception):
    """The transaction cannot go on."""


class TransactionalProducer:
    """One transaction after the other."""

    def __init__(self, cluster: ClusterClient, history: History, places: list[Place], transactional_id: str) -> None:
        self.cluster = cluster
        self.history = history
        self.transactional_id = transactional_id
        self.stopped = False
        self.is_idle = True
        self._places = places
        self._identity = (-1, -1)
        self._sequences: dict[Place, int] = {}
        self._order = 0
        self._progress = Progress(cluster, history, transactional_id, places[0])
        self._reader = Reader(cluster, history, places[:1], committed_only=True)

    async def run(self, seconds_between: float, batch_records_max: int) -> None:
        rng = self.cluster.rng
        while not self.stopped:
            rest = REST_SECONDS if rng.random() < REST_SHARE * 3 else 0.0
            await asyncio.sleep(rng.expovariate(1 / (seconds_between + rest)))
            if not self.stopped:
                self.is_idle = False
                await self._transaction(batch_records_max)
                self.is_idle = True
            if rng.random() < 0.03:
                self._identity = (-1, -1)  # As a client that was restarted.

    async def _transaction(self, batch_records_max: int) -> None:
        rng = self.cluster.rng
        if self._identity[0] < 0:
            await self._initialize()
            await self._progress.read()
        transaction = self.history.begin(self.transactional_id)
        try:
            for place in rng.sample(self._places, rng.randint(1, len(self._places))):
                await self._send(transaction, place, rng.randint(1, batch_records_max))
                if rng.random() < 0.1:
                    await asyncio.sleep(rng.random() * 2)
            if rng.random() < READS_SHARE:
                await self._read(transaction)
            if rng.random() < OFFSETS_SHARE:
                await self._send_offset(transaction)
            commit = rng.random() < 0.75
            if rng.random() < LATE_SHARE:
                # It may have been replaced, or timed out, when it asks for the end.
                await asyncio.sleep(rng.random() * LATE_SECONDS_MAX)
        except Over:
            commit = False
        await self._end(transaction, commit=commit)

    async def _initialize(self) -> None:
        attempt = 0
        while True:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
            try:
                connection = await self.cluster.coordinator(self.transactional_id, TRANSACTION)
                answer = await connection.request(request, InitProducerIdResponse, timeout_ms=5000)
                if not answer.error_code:
                    self._identity = answer.producer_id, answer.producer_epoch
                    self._sequences.clear()
                    return
            except Gone:
                pass
            attempt += 1
            await self.cluster.back_off(attempt)

    # -- writing

    async def _send(self, transaction: Transaction, place: Place, count: int) -> None:
        sends = []
        for _ in range(count):
            self._order += 1
            sends.append(self.history.send(place, f"{self.cluster.name}", self._order, transaction))
        sequence = self._sequences.get(place, 0)
        encoded = encode_batch(self.cluster, sends, self._identity, sequence, attributes=TRANSACTIONAL_BIT)
        self._sequences[place] = sequence + count
        deadline = self.cluster.loop.time() + PATIENCE_SECONDS
        attempt = 0
        while True:
            try:
                if await self._produce(place, encoded, sends):
                    return
            except (Gone, NoLeader):
                pass
            if self.cluster.loop.time() > deadline:
                self._give_up(sends)
                raise Over
            attempt += 1
            await self.cluster.leader_moved(place, attempt)

    async def _produce(self, place: Place, encoded: bytes, sends: list[Send]) -> bool:
        """One attempt; whether it arrived. Over if it never will."""
        connection = await self.cluster.leader_of(place)
        body = encode_request(
            PRODUCE_VERSION,
            [(self.cluster.topic_ids[place.topic], [(place.partition, encoded)])],
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            transactional_id=self.transactional_id,
        )
        position, frame = await connection.ask(PRODUCE_KEY, PRODUCE_VERSION, body, timeout_ms=REQUEST_TIMEOUT_MS * 2)
        answer = parse_response(frame, position, PRODUCE_VERSION).topics[0][1][0]
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            for number, send in enumerate(sends):
                known = code is ErrorCode.NONE and answer.base_offset >= 0
                self.history.settle(send, Outcome.OK, answer.base_offset + number if known else -1)
            return True
        if code in FINAL:
            self._give_up(sends)
            raise Over
        return False

    def _give_up(self, sends: list[Send]) -> None:
        for send in sends:
            self.history.settle(send, Outcome.UNKNOWN)

    # -- reading, and how far it has got

    async def _read(self, transaction: Transaction) -> None:
        """As one that transforms: something that others have committed."""
        self._reader.on_poll = lambda poll: transaction.reads.extend((poll.place, *row) for row in poll.records)
        try:
            await self._reader.read_once()
        except (Gone, NoLeader):
            await self.cluster.back_off(1)

    async def _send_offset(self, transaction: Transaction) -> None:
        deadline = self.cluster.loop.time() + PATIENCE_SECONDS
        attempt = 0
        while self.cluster.loop.time() < deadline:
            attempt += 1
            try:
                code = await self._progress.send(transaction, self._identity)
            except Gone:
                code = ErrorCode.NOT_COORDINATOR
            if code is ErrorCode.NONE:
                transaction.has_offset = True
                return
            if code in FINAL:
                raise Over
            await self.cluster.back_off(attempt)
        raise Over

    # -- the end

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        """Ask for it until it is certain, or hopeless."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=commit,
        )
        if commit:
            transaction.outcome = Outcome.UNKNOWN
        begun_us = self.cluster.room.timeline.now_us
        deadline = self.cluster.loop.time() + PATIENCE_SECONDS
        attempt = 0
        while self.cluster.loop.time() < deadline:
            attempt += 1
            try:
                connection = await self.cluster.coordinator(self.transactional_id, TRANSACTION)
                answer = await connection.request(request, EndTxnResponse, timeout_ms=5000)
            except Gone:
                await self.cluster.back_off(attempt)
                continue
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                transaction.outcome = Outcome.OK if commit else Outcome.FAILED
                self.cluster.room.counts["done: " + ("commit" if commit else "abort")] += 1
                if commit and transaction.has_offset:
                    self._progress.committed(transaction, begun_us)
                self._identity = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            if code in FINAL:
                break
            await self.cluster.back_off(attempt)
        if not commit:
            transaction.outcome = Outcome.FAILED  # No request to commit it was ever made.
        self._identity = (-1, -1)
