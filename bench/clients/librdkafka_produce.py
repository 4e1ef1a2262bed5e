"""Produce as fast as librdkafka can: ADDRESS TOPIC PARTITIONS RECORDS RECORD_BYTES ACKS."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TypeAlias

from confluent_kafka import KafkaError, Message, Producer

Report: TypeAlias = Callable[[KafkaError | None, Message], None]

FLUSH_S = 60
REPORT_EVERY = 1000


def main(address: str, topic: str, partitions: int, records: int, record_bytes: int, acks: str) -> dict[str, object]:
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 400_000,
            "message.timeout.ms": FLUSH_S * 1000,
            "log_level": 0,
        }
    )
    value = os.urandom(record_bytes)
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    producer.flush(FLUSH_S)  # metadata and connection are there before the clock starts
    began = time.perf_counter()
    for sent in range(records):
        report = delivered if sent % REPORT_EVERY == 0 else None
        while not accepted(producer, topic, value, sent % partitions, report):
            producer.poll(0.01)
    unacknowledged = producer.flush(FLUSH_S)
    seconds = time.perf_counter() - began
    if unacknowledged or failures:
        return {"error": failures[0] if failures else f"{unacknowledged} records were not acknowledged"}
    return {"mb_s": records * record_bytes / seconds / 1e6, "bytes": records * record_bytes}


def accepted(producer: Producer, topic: str, value: bytes, partition: int, report: Report | None) -> bool:
    """False while librdkafka's queue is full."""
    try:
        producer.produce(topic, value, partition=partition, on_delivery=report)
    except BufferError:
        return False
    return True


if __name__ == "__main__":
    address, topic, partitions, records, record_bytes, acks = sys.argv[1:]
    print(json.dumps(main(address, topic, int(partitions), int(records), int(record_bytes), acks)))
