"""Copies records from one topic to another exactly once: what it reads is committed with what it writes."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from chaos.clients.client import settings
from chaos.clients.transactional import CALL_SECONDS_MAX, Abandoned, TransactionalProducer
from chaos.recording import Recording
from simulator.history import Place, Transaction

RECORDS_MAX: Final = 200
GROUP: Final = "copiers"


class Copier(TransactionalProducer):
    """One of a group."""

    def __init__(
        self, name: str, bootstrap_servers: str, recording: Recording, seed: int, *, source: str, places: list[Place]
    ) -> None:
        super().__init__(name, bootstrap_servers, recording, seed, places=places)
        self._source = source
        self._consumer: Consumer | None = None
        self._is_committed = False

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._leave()

    def _transaction(self, producer: Producer) -> None:
        """A transaction; after one that was not committed its records are read again, by a new member."""
        self._is_committed = False
        try:
            super()._transaction(producer)
        finally:
            if not self._is_committed:
                self._leave()

    def _committed(self) -> None:
        self._is_committed = True

    def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _fill(self, producer: Producer, transaction: Transaction) -> None:
        consumer = self._joined()
        try:
            messages = consumer.consume(RECORDS_MAX, 0.5)
            ends: dict[int, int] = {}
            for message in messages:
                place, offset = message.partition(), message.offset()
                if message.error() is not None or place is None or offset is None:
                    continue
                send = self._send(producer, transaction, self._places[place % len(self._places)])
                self._recording.copied_from[send.value] = Place(self._source, place), offset
                ends[place] = offset + 1
            offsets = [TopicPartition(self._source, place, offset) for place, offset in ends.items()]
            if offsets:
                self._step(
                    "send_offsets_to_transaction",
                    lambda: producer.send_offsets_to_transaction(
                        offsets, consumer.consumer_group_metadata(), CALL_SECONDS_MAX
                    ),
                )
        except (KafkaException, RuntimeError) as error:
            self._recording.failed(f"{self.name}: {type(error).__name__}: {error}")
            raise Abandoned from error

    def _joined(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                settings(
                    self._bootstrap_servers,
                    group_id=GROUP,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    isolation_level="read_committed",
                    session_timeout_ms=6000,
                    heartbeat_interval_ms=500,
                )
            )
            self._consumer.subscribe([self._source])
        return self._consumer
