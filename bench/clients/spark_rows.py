"""Fill a topic with rows for Spark to read: ADDRESS TOPIC PARTITIONS ROWS CODEC.

Both systems get the same batches: 150 rows of 100 B each, which is what a Java producer's default of 16 kB holds. A few
hundred of them are built once and sent over and over, so that millions of rows are there within seconds.
"""

from __future__ import annotations

import json
import random
import sys
import time

from ottla.client.batch_sender import BatchSender, Delivery
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.settings import ClientSettings, parse_bootstrap
from ottla.model.ids import TopicPartition
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch

VALUE_BYTES = 100
BATCH_ROWS = 150
DIFFERENT_BATCHES = 200
QUEUED_BYTES_MAX = 4 << 20


def values(count: int) -> list[bytes]:
    """Lines that compress about as well as what people write to topics."""
    dice = random.Random(7)
    lines = (
        f'{{"user":{dice.randrange(10**6)},"page":"/products/{dice.randrange(5000)}","ms":{dice.randrange(2000)},'
        f'"agent":"{dice.choice(("firefox", "chrome", "safari"))}","session":"{dice.getrandbits(128):032x}"}}'
        for _ in range(count)
    )
    return [line.encode().ljust(VALUE_BYTES)[:VALUE_BYTES] for line in lines]


def batches(codec: Codec) -> list[bytes]:
    now_ms = time.time_ns() // 1_000_000
    rows = values(BATCH_ROWS * DIFFERENT_BATCHES)
    return [
        bytes(
            build_batch(
                [Record(at, now_ms, None, value, ()) for at, value in enumerate(rows[first : first + BATCH_ROWS])],
                base_offset=0,
                codec=codec,
            )
        )
        for first in range(0, len(rows), BATCH_ROWS)
    ]


def fill(address: str, topic: str, partitions: int, rows: int, codec: Codec) -> None:
    """Every partition gets the same number of rows."""
    failures: list[ClientError] = []

    def delivered(delivery: Delivery) -> None:
        if delivery.error is not None:
            failures.append(delivery.error)

    ready = batches(codec)
    with Cluster(ClientSettings(bootstrap=parse_bootstrap(address))) as cluster:
        sender = BatchSender(cluster, delivered)
        for number in range(rows // BATCH_ROWS):
            batch = bytearray(ready[number // partitions % len(ready)])
            sender.submit(TopicPartition(topic, number % partitions), batch, BATCH_ROWS)
            while sender.queued_bytes > QUEUED_BYTES_MAX:
                sender.poll(1_000)
        sender.flush()
    if failures:
        raise failures[0]


def main(address: str, topic: str, partitions: int, rows: int, codec: str) -> dict[str, object]:
    if rows % (partitions * BATCH_ROWS):
        return {"error": f"{rows} rows do not make whole batches of {BATCH_ROWS} in {partitions} partitions"}
    try:
        fill(address, topic, partitions, rows, Codec[codec.upper()])
    except ClientError as failure:
        return {"error": str(failure)}
    return {"rows": rows}


if __name__ == "__main__":
    address, topic, partitions, rows, codec = sys.argv[1:]
    print(json.dumps(main(address, topic, int(partitions), int(rows), codec)))
