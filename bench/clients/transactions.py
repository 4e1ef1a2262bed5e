"""Transactions of a hundred records with librdkafka: ADDRESS TOPIC TRANSACTIONS RECORDS_EACH RECORD_BYTES."""

from __future__ import annotations

import json
import os
import sys
import time

from confluent_kafka import Producer

WARM_UP_SHARE = 0.2
TIMEOUT_S = 30.0


def main(address: str, topic: str, transactions: int, records_each: int, record_bytes: int) -> dict[str, object]:
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": f"bench-{os.getpid()}", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    value = os.urandom(record_bytes)
    warm_up = max(1, int(transactions * WARM_UP_SHARE))
    began = time.perf_counter()
    for number in range(warm_up + transactions):
        if number == warm_up:
            began = time.perf_counter()
        producer.begin_transaction()
        for record in range(records_each):
            producer.produce(topic, value, partition=record % 4)
        producer.commit_transaction(TIMEOUT_S)
    seconds = time.perf_counter() - began
    return {"transactions_s": transactions / seconds, "records_s": transactions * records_each / seconds}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))))
