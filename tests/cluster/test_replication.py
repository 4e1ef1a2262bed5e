"""Three brokers and real clients: what is acknowledged is there, whoever dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.cluster.nodes import Cluster, until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


class Writer:
    """Writes numbers until it is told to stop, and remembers which were acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str, **config: object) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[KafkaError] = []
        self.longest_gap = 0.0
        self._last = time.monotonic()
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "error_cb": lambda _error: None,
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        until(lambda: len(self.acknowledged) > 0, "the first record is acknowledged")
        self.longest_gap = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._delivered)
            self._producer.poll(0.002)
            number += 1
        assert self._producer.flush(20) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        value = message.value()
        assert value is not None
        now = time.monotonic()
        self.longest_gap = max(self.longest_gap, now - self._last)
        self._last = now
        self.acknowledged.append(int(value))

    def more(self, count: int = 20) -> None:
        """Return when that many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, f"{count} more records are acknowledged")


def read_all(bootstrap_servers: str, topic: str, count: int) -> list[int]:
    """The values of a topic, at least this many, in the order of their offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[int] = []
    deadline = time.monotonic() + 20
    try:
        while len(values) < count:
            assert time.monotonic() < deadline, f"{len(values)} of {count} records after 20 s"
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                values.append(int(value))
        return values
    finally:
        consumer.close()


def check(cluster: Cluster, topic: str, writer: Writer) -> None:
    assert not writer.errors
    values = read_all(cluster.bootstrap_servers, topic, len(writer.acknowledged))
    assert sorted(values) == sorted(writer.acknowledged), "each acknowledged record once"


def test_what_is_acknowledged_is_read(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    with Writer(cluster.bootstrap_servers, "orders") as writer:
        writer.more(200)
    assert sorted(cluster.leaders("orders")) == [1, 2, 3]
    check(cluster, "orders", writer)


def test_a_killed_leader_is_replaced_and_comes_back(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    leader = cluster.leaders("orders")[0]
    with Writer(cluster.bootstrap_servers, "orders") as writer:
        writer.more()
        cluster.nodes[leader].kill()
        writer.more()
        assert writer.longest_gap < 5, writer.longest_gap
        assert cluster.leaders("orders")[0] != leader
        cluster.nodes[leader].start()
        cluster.wait_in_sync("orders")
        writer.more()
    check(cluster, "orders", writer)


def test_every_node_is_killed_in_turn(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    with Writer(cluster.bootstrap_servers, "orders") as writer:
        for node in cluster.nodes.values():
            writer.more()
            node.kill()
            writer.more()
            node.start()
            cluster.wait_in_sync("orders")
    check(cluster, "orders", writer)


def test_a_rolling_restart_disturbs_nobody(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    with Writer(cluster.bootstrap_servers, "orders") as writer:
        for node in cluster.nodes.values():
            writer.more()
            assert node.stop() == 0
            writer.more()
            node.start()
            cluster.wait_in_sync("orders")
            writer.more()
    assert writer.longest_gap < 3, writer.longest_gap
    check(cluster, "orders", writer)


def test_all_killed_at_once_lose_nothing_that_was_flushed(tmp_path: Path) -> None:
    with Cluster(tmp_path, log_flush_interval_messages="1") as cluster:
        cluster.create_topic("orders")
        with Writer(cluster.bootstrap_servers, "orders") as writer:
            writer.more(100)
        for node in cluster.nodes.values():
            node.kill()
        cluster.start()
        check(cluster, "orders", writer)
