"""A transactional producer, alone or with what it copies from another topic.

Theory of operation. A transaction ends committed, aborted, or, when the client gave up in the middle of a commit, in a
way that only the log knows. What the client calls retriable is done again; what asks for an abort is aborted; after
anything else there is a new producer with the same transactional id, whose start ends what the old one has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from chaos.clients.client import Client, settings
from chaos.recording import Recording
from simulator.history import Outcome, Place, Send, Transaction

STEP_SECONDS_MAX: Final = 40.0
"""For which one step is tried again."""
CALL_SECONDS_MAX: Final = 15.0
ABORTED_SHARE: Final = 0.2


class Abandoned(Exception):
    """The producer is of no use any more."""


class TransactionalProducer(Client):
    """Transactions over several partitions; some are aborted on purpose."""

    def __init__(
        self, name: str, bootstrap_servers: str, recording: Recording, seed: int, *, places: list[Place]
    ) -> None:
        super().__init__(name, bootstrap_servers, recording, seed)
        self._places = places
        self._orders = dict.fromkeys(places, 0)
        self._producer: Producer | None = None
        self._sends: list[Send] = []
        """Those of the present transaction."""

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._transaction(self._ready_producer())
            except Abandoned:
                self._producer = None
            self._stopping.wait(self._random.uniform(0, 0.1))
        # Whatever is left open would hold up the last read until it times out.
        try:
            self._producer = None
            self._ready_producer()
        except Abandoned:
            self._recording.failed(f"{self.name} could not begin anew at the end")

    def _ready_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                settings(
                    self._bootstrap_servers,
                    transactional_id=self.name,
                    transaction_timeout_ms=60_000,
                    linger_ms=1,
                )
            )
            self._step("init_transactions", partial(producer.init_transactions, CALL_SECONDS_MAX))
            self._producer = producer
        return self._producer

    def _transaction(self, producer: Producer) -> None:
        transaction = self._recording.begin(self.name)
        self._sends = transaction.sends
        try:
            self._step("begin_transaction", producer.begin_transaction)
            self._fill(producer, transaction)
            if self._random.random() < ABORTED_SHARE:
                # An abort before anything has reached the coordinator is a fatal mistake to librdkafka.
                producer.flush(CALL_SECONDS_MAX)
                self._abort(producer)
                transaction.outcome = Outcome.FAILED
                return
        except Abandoned:
            # It never asked for the commit, so there is none.
            transaction.outcome = Outcome.FAILED
            raise
        except _NeedsAbort:
            transaction.outcome = Outcome.FAILED
            self._abort(producer)
            return
        self._commit(producer, transaction)

    def _commit(self, producer: Producer, transaction: Transaction) -> None:
        transaction.outcome = Outcome.UNKNOWN
        try:
            self._step("commit_transaction", partial(producer.commit_transaction, CALL_SECONDS_MAX))
        except _NeedsAbort:
            self._abort(producer)
            transaction.outcome = Outcome.FAILED
        else:
            transaction.outcome = Outcome.OK
            self._committed()

    def _abort(self, producer: Producer) -> None:
        try:
            self._step("abort_transaction", partial(producer.abort_transaction, CALL_SECONDS_MAX))
        except _NeedsAbort:
            raise Abandoned from None

    def _fill(self, producer: Producer, transaction: Transaction) -> None:
        """Put something into a transaction."""
        for _ in range(self._random.randint(1, 8)):
            self._send(producer, transaction, self._random.choice(self._places))

    def _committed(self) -> None:
        """A transaction was committed."""

    def _send(self, producer: Producer, transaction: Transaction, place: Place) -> Send:
        self._orders[place] += 1
        send = self._recording.send(place, self.name, self._orders[place], transaction)
        delivered = partial(self._settle, send)
        try:
            producer.produce(place.topic, str(send.value).encode(), partition=place.partition, on_delivery=delivered)
        except KafkaException as error:
            self._judge("produce", error)
        return send

    def _step(self, name: str, call: Callable[[], object]) -> None:
        """Do it, again where that is what the client asks for. Abandoned, or _NeedsAbort."""
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    self._judge(name, error)
                time.sleep(0.05)

    def _judge(self, name: str, error: KafkaException) -> None:
        reason: KafkaError = error.args[0]
        # Of a transaction in which something was delivered, its coordinator knows.
        delivered = sum(send.outcome is Outcome.OK for send in self._sends)
        self._recording.failed(f"{self.name}: {name}: {reason.name()} ({delivered} of {len(self._sends)} delivered)")
        if reason.txn_requires_abort():
            raise _NeedsAbort from error
        raise Abandoned from error


class _NeedsAbort(Exception):
    """The client asks for the transaction to be aborted."""
