"""Reads the results as any reader of committed records would, while they come, and notes every single one."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from demo.clients import settings
from demo.streams import PARTITIONS, RESULTS
from demo.timeline import Timeline

READ_MAX: Final = 2_000
TIMES_MAX: Final = 255


@dataclass
class Seen:
    """The results of one stream."""

    times: bytearray = field(default_factory=bytearray)
    """How often each event had a result, by its number."""
    counts: Counter[str] = field(default_factory=Counter)
    amounts: Counter[str] = field(default_factory=Counter)
    last_of_key: dict[str, int] = field(default_factory=dict)
    out_of_order: list[str] = field(default_factory=list)

    def take(self, result: dict[str, Any], key: str) -> None:
        number, category = int(result["n"]), str(result["category"])
        if number >= len(self.times):
            self.times.extend(bytes(number + 1 - len(self.times)))
        self.times[number] = min(self.times[number] + 1, TIMES_MAX)
        self.counts[category] += 1
        self.amounts[category] += int(result["amount"])
        if number < self.last_of_key.get(key, -1):
            self.out_of_order.append(f"{key} {number} after {self.last_of_key[key]}")
        self.last_of_key[key] = number


class Auditor:
    """A consumer in a thread. `seen` is by the stream that a result says it is of."""

    def __init__(self, bootstrap: str, timeline: Timeline) -> None:
        self.seen: dict[str, Seen] = {}
        self.strange: list[str] = []
        """Results that cannot be read."""
        self.total = 0
        self.crash: Exception | None = None
        self._timeline = timeline
        self._consumer = Consumer(
            settings(
                bootstrap,
                group_id="demo-auditor",
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="error",
                fetch_wait_max_ms=100,
            )
        )
        self._places = [(topic, partition) for topic in RESULTS for partition in range(PARTITIONS)]
        self.at_end = False
        self._ending, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="auditor", daemon=True)

    def start(self) -> None:
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self._places])
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30)
        self._consumer.close()

    def read_to_end(self) -> None:
        """Nobody writes any more: `at_end` becomes true when all is read. A consumer is one thread's, so that asks."""
        self._ending.set()

    def _is_at_end(self) -> bool:
        places = [TopicPartition(topic, partition) for topic, partition in self._places]
        ends = {(p.topic, p.partition): self._consumer.get_watermark_offsets(p, 10)[1] for p in places}
        reached = {(p.topic, p.partition): p.offset for p in self._consumer.position(places)}
        # A position not known yet is below zero: nothing has been read, which is all there is of an empty partition.
        return all(max(reached[place], 0) >= end for place, end in ends.items())

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                messages = self._consumer.consume(READ_MAX, timeout=0.1)
                self._take(messages)
                if not messages and self._ending.is_set() and not self.at_end:
                    self.at_end = self._is_at_end()
        except Exception as error:
            self.crash = error

    def _take(self, messages: list[Message]) -> None:
        if not messages:
            return
        at, now_ms, latencies_ms = self._timeline.now, time.time() * 1000, []
        for message in messages:
            error, value = message.error(), message.value()
            if error is not None:
                self._judge(error)
                continue
            self.total += 1
            try:
                result = json.loads(value or b"")
                self.seen.setdefault(str(result["source"]), Seen()).take(result, (message.key() or b"").decode())
                latencies_ms.append(now_ms - float(result["sent_ms"]))
            except (ValueError, KeyError, TypeError) as error:
                self.strange.append(f"{message.topic()}-{message.partition()} offset {message.offset()}: {error!r}")
        if latencies_ms:
            self._timeline.results_seen(at, len(latencies_ms), latencies_ms)

    @staticmethod
    def _judge(error: KafkaError) -> None:
        """A broker that is away comes back, or another leads; what cannot be mended by waiting is raised."""
        if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise RuntimeError(f"the reader of the results failed: {error}")
