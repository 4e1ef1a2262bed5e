"""Fill a topic with rows for Spark to read: ADDRESS TOPIC PARTITIONS ROWS CODEC."""

from __future__ import annotations

import json
import sys

from confluent_kafka import Producer

from bench.clients.librdkafka_produce import accepted

FLUSH_S = 120
VALUE_BYTES = 100


def main(address: str, topic: str, partitions: int, rows: int, codec: str) -> dict[str, object]:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 100_000,
            "queue.buffering.max.messages": 200_000,
            "log_level": 0,
        }
    )
    # Digits and letters compress about as well as what people write to topics.
    values = [(b"%d:abcdefghij" % (number * 7919) * 20)[:VALUE_BYTES] for number in range(1000)]
    for sent in range(rows):
        while not accepted(producer, topic, values[sent % len(values)], sent % partitions, None):
            producer.poll(0.01)
    left = producer.flush(FLUSH_S)
    return {"error": f"{left} records were not acknowledged"} if left else {"rows": rows}


if __name__ == "__main__":
    address, topic, partitions, rows, codec = sys.argv[1:]
    print(json.dumps(main(address, topic, int(partitions), int(rows), codec)))
