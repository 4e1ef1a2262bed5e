"""How long acknowledgements stay out: ADDRESS TOPIC PARTITIONS.

Writes some hundred records a second with acks=all, in turns to all partitions, and says `go` when that works. A line
on standard input says that something is being done to the cluster. When all partitions are acknowledged again for two
seconds it prints the longest time that any of them was without an acknowledgement.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from itertools import pairwise

from confluent_kafka import KafkaError, Message, Producer

GO_S = 2.0
QUIET_S = 2.0
LIMIT_S = 60.0
PAUSE_S = 0.002


class Writer:
    """A producer, and when each partition was acknowledged."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        self.acknowledged: list[list[float]] = [[] for _ in range(partitions)]
        self.failures: list[str] = []
        self._topic = topic
        self._next = 0
        self._producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "log_level": 0})

    def write(self) -> None:
        try:
            partition = self._next % len(self.acknowledged)
            self._producer.produce(self._topic, b"x" * 100, partition=partition, on_delivery=self._delivered)
            self._next += 1
        except BufferError:
            pass
        self._producer.poll(PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.partition() or 0].append(time.monotonic())

    def is_well_since(self, began: float) -> bool:
        """Whether every partition has been acknowledged again and again for a while, lately."""
        now = time.monotonic()
        return now - began > QUIET_S and all(
            times and now - times[-1] < 0.5 and _gap(times, now - QUIET_S) < 0.5 for times in self.acknowledged
        )

    def longest_gap_s(self, since: float) -> float:
        return max(_gap(times, since) for times in self.acknowledged)


def _gap(times: list[float], since: float) -> float:
    """The longest time between two acknowledgements of which the later one came after `since`."""
    pairs = [(before, after) for before, after in pairwise(times) if after > since]
    return max((after - before for before, after in pairs), default=LIMIT_S)


def main(address: str, topic: str, partitions: int) -> dict[str, object]:
    writer = Writer(address, topic, partitions)
    told: list[float] = []
    began, said = time.monotonic(), False
    threading.Thread(target=lambda: told.append(time.monotonic() if sys.stdin.readline() else 0.0), daemon=True).start()
    while time.monotonic() - began < LIMIT_S:
        writer.write()
        if not said and writer.is_well_since(began + GO_S - QUIET_S):
            said = True
            print("go", flush=True)
        if told and writer.is_well_since(told[0]):
            break
    else:
        reason = f": {writer.failures[0]}" if writer.failures else ""
        return {"error": f"not every partition was acknowledged within {LIMIT_S:.0f} s{reason}"}
    if writer.failures:
        return {"error": f"{len(writer.failures)} records were given up: {writer.failures[0]}"}
    return {"gap_s": writer.longest_gap_s(told[0])}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
