"""Those who write events, one for each stream, and what they know of it: the truth."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from demo.clients import settings
from demo.streams import Stream
from demo.timeline import Failover, Timeline

TICK_SECONDS: Final = 0.02
BURST_SECONDS: Final = 0.5
"""What a busy machine kept it from writing for longer than this is not made up for."""
FLUSH_SECONDS_MAX: Final = 60.0


@dataclass
class Truth:
    """What was written of a stream. Events are numbered from 0 in the order in which they were made."""

    made: int = 0
    acknowledged: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    amounts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Generator:
    """Writes so many events of a stream each second until it is stopped."""

    def __init__(
        self, stream: Stream, bootstrap: str, rate: float, seed: int, timeline: Timeline, failover: Failover
    ) -> None:
        self.truth = Truth()
        self.crash: Exception | None = None
        self._stream = stream
        self.rate = rate
        """Events a second; may be changed while it writes."""
        self._chance = random.Random(f"{seed}/{stream.topic}")
        self._timeline, self._failover = timeline, failover
        self._producer = Producer(
            settings(
                bootstrap,
                enable_idempotence=True,
                # As Java's producers and Spark's sink do it, so that a key has one place wherever it was written from.
                partitioner="murmur2_random",
                compression_type="lz4",
                linger_ms=5,
                retry_backoff_max_ms=200,
            )
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=stream.topic, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Make no more; what was made is still to be acknowledged."""
        self._stopping.set()

    def join(self) -> bool:
        """Whether all that was made is acknowledged or refused."""
        self._thread.join(FLUSH_SECONDS_MAX + 10)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._write()
            self._producer.flush(FLUSH_SECONDS_MAX)
        except Exception as error:
            self.crash = error

    def _write(self) -> None:
        owed, before = 0.0, time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            owed, before = min(owed + (now - before) * self.rate, self.rate * BURST_SECONDS), now
            for _ in range(int(owed)):
                self._write_one()
            owed -= int(owed)
            self._producer.poll(TICK_SECONDS)
            self._stopping.wait(max(0.0, TICK_SECONDS - (time.monotonic() - now)))

    def _write_one(self) -> None:
        event = self._stream.make(self._chance)
        value = json.dumps({"n": self.truth.made, "sent_ms": time.time() * 1000, **event.fields})
        while True:
            try:
                self._producer.produce(self._stream.topic, value, event.key, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(TICK_SECONDS)
        self.truth.made += 1
        self.truth.counts[event.category] += 1
        self.truth.amounts[event.category] += event.amount

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.truth.failures.append(str(error))
            return
        at = self._timeline.now
        self.truth.acknowledged += 1
        self._timeline.acknowledged(at, (message.latency() or 0.0) * 1000)
        self._failover.acknowledged((self._stream.topic, message.partition() or 0), at)
