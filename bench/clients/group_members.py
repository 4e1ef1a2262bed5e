"""A group of librdkafka consumers until it is stable, and after one leaves: ADDRESS TOPIC PARTITIONS MEMBERS PROTOCOL.

Stable means that the members hold every partition once, that each member has some, and that this did not change for a
while; the time is that of the last change.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException

QUIET_S = 1.5
LIMIT_S = 60
CLASSIC_HEARTBEAT_MS = 500
"""With the client's default of 3 s the figure would be a lottery."""


class Group:
    """Members in threads, and what each of them holds."""

    def __init__(self, address: str, topic: str, members: int, protocol: str) -> None:
        self.topic = topic
        self.settings: dict[str, str | int | bool] = {
            "bootstrap.servers": address,
            "group.id": f"bench-{protocol}-{os.getpid()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        if protocol == "consumer":
            self.settings["group.protocol"] = "consumer"
        else:
            self.settings["heartbeat.interval.ms"] = CLASSIC_HEARTBEAT_MS
        self.held: list[frozenset[int]] = [frozenset()] * members
        self.changed_at = time.monotonic()
        self.left_at: float | None = None
        self.leave = threading.Event()

    def start(self) -> None:
        for index in range(len(self.held)):
            threading.Thread(target=self.take_part, args=(index,), daemon=True).start()

    def take_part(self, index: int) -> None:
        consumer = Consumer(self.settings)
        consumer.subscribe([self.topic])
        while not (index == 0 and self.leave.is_set()):
            consumer.poll(0.05)
            try:
                held = frozenset(item.partition for item in consumer.assignment())
            except KafkaException:
                return
            if held != self.held[index]:
                self.held[index], self.changed_at = held, time.monotonic()
        self.left_at = time.monotonic()
        consumer.close()
        self.held[index] = frozenset()

    def stable_after(self, began: float, partitions: int, first: int) -> float | None:
        while time.monotonic() - began < LIMIT_S:
            time.sleep(0.02)
            held = self.held[first:]
            everything = sorted(partition for part in held for partition in part) == list(range(partitions))
            if all(held) and everything and time.monotonic() - max(self.changed_at, began) > QUIET_S:
                return self.changed_at - began
        return None


def main(address: str, topic: str, partitions: int, members: int, protocol: str) -> dict[str, object]:
    group = Group(address, topic, members, protocol)
    began = time.monotonic()
    group.start()
    join_s = group.stable_after(began, partitions, 0)
    if join_s is None:
        return {"error": f"no stable group after {LIMIT_S} s"}
    group.leave.set()
    while group.left_at is None:
        time.sleep(0.005)
    leave_s = group.stable_after(group.left_at, partitions, 1)
    if leave_s is None:
        return {"error": f"not stable again {LIMIT_S} s after a member left"}
    return {"join_s": join_s, "leave_s": leave_s}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])), flush=True)
    os._exit(0)  # Members that stay would each take their time to leave.
