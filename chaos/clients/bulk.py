"""A producer with several long requests under way, as brokers get them from those who are faster than they are.

It is not idempotent: with several requests under way librdkafka may write a record twice, to any broker (`idempotent`).
So all that is asked of brokers here is that what they have acknowledged is there in the end. What it writes has a topic
and a recording of its own, in which records may be repeated.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Producer

from chaos.clients.client import settings
from chaos.clients.windowed import WindowedProducer
from chaos.recording import Recording
from simulator.findings import Findings
from simulator.history import Outcome, Place

IN_FLIGHT: Final = 5
VALUE_BYTES: Final = 1500
"""Some of them make a request that is too long to wait for those of others, and is written with those behind it."""
BATCH_BYTES: Final = 12_000
BURST: Final = 60
WINDOW: Final = 300
"""Records under way at once."""
PAUSE_SECONDS: Final = 0.1


class BulkProducer(WindowedProducer):
    """Sends bursts of long values, each to one partition."""

    def _run(self) -> None:
        producer = Producer(
            settings(
                self._bootstrap_servers,
                acks="all",
                linger_ms=2,
                batch_size=BATCH_BYTES,
                message_timeout_ms=120_000,
                max_in_flight_requests_per_connection=IN_FLIGHT,
            )
        )
        while not self._stopping.is_set():
            if self._under_way + BURST <= WINDOW:
                place = self._random.choice(self._places)
                for _ in range(BURST):
                    self._send(producer, place)
            producer.poll(PAUSE_SECONDS)
            self._stopping.wait(PAUSE_SECONDS)
        self._deliver_all(producer)

    def _send(self, producer: Producer, place: Place) -> None:
        send = self._recording.send(place, self.name, 0)
        self._produce(producer, send, str(send.value).encode().ljust(VALUE_BYTES))


def check_bulk(recording: Recording, findings: Findings) -> None:
    """What was acknowledged is in the last read."""
    read = {place: {value for _, value in rows} for (place, _), rows in recording.final.items()}
    for send in recording.sends:
        if send.outcome is Outcome.OK and send.value not in read[send.place]:
            findings.add("lost write", f"{send.producer}'s value {send.value} at {send.place} offset {send.offset}")
