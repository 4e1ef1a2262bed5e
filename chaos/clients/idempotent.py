"""An idempotent producer. Whatever happens to brokers, it must not fail: then a record is lost, or written twice.

One request is under way to a broker at a time. With several, librdkafka itself writes a record twice, to any broker: if
the first fails though it was written under the leader before, and the third comes out of order because the replicas
were too few only for the first two, it begins a new epoch and sends all three again. The transactional producers here
have several under way, and so have those of `bulk`, which may repeat themselves, and those of the simulator.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Producer

from chaos.clients.client import settings
from chaos.clients.windowed import WindowedProducer
from chaos.recording import Recording
from simulator.history import Place

WINDOW: Final = 200
"""Records under way at once."""


class IdempotentProducer(WindowedProducer):
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
        super().__init__(name, bootstrap_servers, recording, seed, places=places)
        self._in_flight_max = in_flight_max
        self._reconnect_ms_max = reconnect_ms_max
        self._orders = dict.fromkeys(places, 0)

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
        self._deliver_all(producer)

    def _send(self, producer: Producer) -> None:
        place = self._random.choice(self._places)
        self._orders[place] += 1
        send = self._recording.send(place, self.name, self._orders[place])
        self._produce(producer, send, str(send.value).encode())
