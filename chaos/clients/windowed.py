"""What producers have in common that keep a window of records under way and must deliver all of them in the end."""

from __future__ import annotations

from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from chaos.clients.client import Client
from chaos.recording import Recording
from simulator.history import Place, Send

FLUSH_SECONDS: Final = 60.0


class WindowedProducer(Client):
    """Counts what is under way, and records what becomes of it."""

    def __init__(
        self, name: str, bootstrap_servers: str, recording: Recording, seed: int, *, places: list[Place]
    ) -> None:
        super().__init__(name, bootstrap_servers, recording, seed)
        self._places = places
        self._under_way = 0

    def _produce(self, producer: Producer, send: Send, value: bytes) -> None:
        self._under_way += 1
        topic, partition = send.place
        producer.produce(topic, value, partition=partition, on_delivery=partial(self._delivered, send))

    def _delivered(self, send: Send, error: KafkaError | None, message: Message) -> None:
        self._under_way -= 1
        self._settle(send, error, message)
        if error is not None:
            self._recording.failed(f"{self.name}: {error.name()}: {error.str()}")

    def _deliver_all(self, producer: Producer) -> None:
        if producer.flush(FLUSH_SECONDS) > 0:
            self._recording.failed(f"{self.name} could not deliver all within {FLUSH_SECONDS:.0f} s of the end")
