"""An idempotent producer. Whatever happens to brokers, it must not fail: then a record is lost, or written twice.

One request is under way to a broker at a time. With several, librdkafka itself writes a record twice, to any broker: if
the first fails though it was written under the leader before, and the third comes out of order because the replicas
were too few only for the first two, it begins a new epoch and sends all three again. The transactional producers here
have several under way, and so have those of `bulk`, which may repeat themselves, and those of the simulator.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from chaos.clients.client import Client, settings
from chaos.recording import Recording
from simulator.history import Outcome, Place, Send

WINDOW: Final = 200
"""Records under way at once."""
FLUSH_SECONDS: Final = 60.0


class IdempotentProducer(Client):
    """Sends values to partitions at random."""

    def __init__(
        self,
        name: str,
        bootstrap_servers: str,
        recording: Recording,
        seed: int,
        *,
        places: list[Place],
        in_flight_max: int = 1,
        reconnect_ms_max: int = 10_000,
    ) -> None:
        super().__init__(name, bootstrap_servers, recording, seed)
        self._in_flight_max = in_flight_max
        self._reconnect_ms_max = reconnect_ms_max
        self._places = places
        self._orders = dict.fromkeys(places, 0)
        self._under_way = 0

    def _run(self) -> None:
        producer = Producer(
            settings(
                self._bootstrap_servers,
                enable_idempotence=True,
                acks="all",
                linger_ms=2,
                message_timeout_ms=120_000,
                max_in_flight_requests_per_connection=self._in_flight_max,
                reconnect_backoff_max_ms=self._reconnect_ms_max,
            )
        )
        while not self._stopping.is_set():
            for _ in range(self._random.randint(1, 3)):
                if self._under_way < WINDOW:
                    self._send(producer)
            producer.poll(0.01)
        if producer.flush(FLUSH_SECONDS) > 0:
            self._recording.failed(f"{self.name} could not deliver all within {FLUSH_SECONDS:.0f} s of the end")

    def _send(self, producer: Producer) -> None:
        place = self._random.choice(self._places)
        self._orders[place] += 1
        send = self._recording.send(place, self.name, self._orders[place])
        self._under_way += 1
        producer.produce(
            place.topic, str(send.value).encode(), partition=place.partition, on_delivery=partial(self._delivered, send)
        )

    def _delivered(self, send: Send, error: KafkaError | None, message: Message) -> None:
        self._under_way -= 1
        if error is None:
            offset = message.offset()
            self._recording.settle(send, Outcome.OK, -1 if offset is None else offset)
        else:
            self._recording.settle(send, Outcome.UNKNOWN)
            self._recording.failed(f"{self.name}: {error.name()}: {error.str()}")
