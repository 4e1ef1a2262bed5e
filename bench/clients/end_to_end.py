"""From produce to a consumer that waits, one record at a time, librdkafka on both ends: ADDRESS TOPIC RECORDS."""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.errors import NotMeasured

WAIT_S = 10
WARM_UP_SHARE = 0.2
RECORD_BYTES = 100


def main(address: str, topic: str, records: int) -> dict[str, object]:
    producer = Producer({"bootstrap.servers": address, "acks": "1", "linger.ms": 0, "log_level": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",  # the client insists on one; nothing is committed
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, first_offset(producer, topic))])
    warm_up = int(records * WARM_UP_SHARE)
    times_ms: list[float] = []
    for number in range(records + warm_up):
        value = number.to_bytes(RECORD_BYTES, "big")
        began = time.perf_counter()
        producer.produce(topic, value, partition=0)
        producer.poll(0)
        if not arrived(consumer, value):
            return {"error": f"record {number} did not arrive within {WAIT_S} s"}
        times_ms.append((time.perf_counter() - began) * 1000)
    consumer.close()
    counted = sorted(times_ms[warm_up:])
    return {"p50_ms": counted[len(counted) // 2], "p99_ms": counted[len(counted) * 99 // 100]}


def first_offset(producer: Producer, topic: str) -> int:
    """The offset after a first record, which also brings metadata and a connection."""
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            offsets.append(offset)

    producer.produce(topic, b"first", partition=0, on_delivery=delivered)
    producer.flush(WAIT_S)
    if not offsets:
        raise NotMeasured("the first record was not acknowledged")
    return offsets[0] + 1


def arrived(consumer: Consumer, value: bytes) -> bool:
    deadline = time.perf_counter() + WAIT_S
    while time.perf_counter() < deadline:
        message = consumer.poll(WAIT_S)
        if message is not None and message.error() is None and message.value() == value:
            return True
    return False


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
