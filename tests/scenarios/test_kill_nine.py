"""kill -9 in the middle of writes, again and again: what was acknowledged is there, once, at the answered offset."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.batch import read_header
from tests.scenarios.brokers import BrokerProcess

KILLS = 200
PARTITIONS = 3
OUTSTANDING_MAX = 2000
"""Records on the way. Each kill comes with the first answers, so without a bound they would grow more and more."""
SEED = 20260101
INDEX_ENTRY = struct.Struct(">ii")


class Writer:
    """An idempotent producer that goes on whatever happens to its broker, and remembers what was acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.errors: list[str] = []
        self._topic = topic
        self._next = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 20,
                "retry.backoff.ms": 5,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )

    def write_until(self, acknowledged_more: int) -> None:
        """Keep writing until that many more records are acknowledged."""
        goal = len(self.acknowledged) + acknowledged_more
        deadline = time.monotonic() + 30
        while len(self.acknowledged) < goal:
            assert time.monotonic() < deadline, f"no progress: {self.errors[-3:]}"
            if len(self._producer) < OUTSTANDING_MAX:
                self.write(20)
            self._producer.poll(0.002)

    def write(self, count: int) -> None:
        for _ in range(count):
            number = self._next
            self._next += 1
            padding = b"x" * (number * 37 % 900)
            self._producer.produce(
                self._topic, b"%d:" % number + padding, partition=number % PARTITIONS, on_delivery=self._delivered
            )

    def finish(self) -> None:
        assert self._producer.flush(60) == 0
        assert not self.errors

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        value = message.value()
        assert value is not None
        self.acknowledged[int(value.split(b":", 1)[0])] = (message.partition() or 0, message.offset() or 0)


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_or_doubled_by_kill_nine(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with BrokerProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topic = NewTopic("t", PARTITIONS, 1, config={"segment.bytes": "1048576"})
        admin.create_topics([topic])["t"].result(10)
        writer = Writer(broker.bootstrap_servers, "t")
        for _ in range(KILLS):
            writer.write_until(rng.randrange(1, 400))
            writer.write(rng.randrange(0, 200))
            broker.kill()
            broker.start()
        writer.finish()
        seen = read_all(broker.bootstrap_servers)
        assert broker.stop() == 0
        broker.start()
        assert read_all(broker.bootstrap_servers) == seen, "a clean restart changed what is read"
        broker.stop()
    assert len(seen) == len(set(seen.values())), "a record is there twice"
    assert {place: number for number, place in writer.acknowledged.items()} == seen
    for directory in sorted((tmp_path / "data").glob("t-*")):
        check_indexes(directory)


def read_all(bootstrap_servers: str) -> dict[tuple[int, int], int]:
    """Every record's number by (partition, offset)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    seen: dict[tuple[int, int], int] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(20)
        assert message is not None, "the consumer hangs"
        error = message.error()
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(partition)
        else:
            assert value is not None
            assert (partition, offset) not in seen
            seen[(partition, offset)] = int(value.split(b":", 1)[0])
    consumer.close()
    return seen


def check_indexes(directory: Path) -> None:
    """Each entry of each offset index points to the batch that holds its offset."""
    for path in directory.glob("*.index"):
        base_offset = int(path.stem)
        log = path.with_suffix(".log").read_bytes()
        for relative, position in INDEX_ENTRY.iter_unpack(path.read_bytes()):
            header = read_header(log, position)
            assert header.base_offset <= base_offset + relative <= header.last_offset, (path, relative, position)
