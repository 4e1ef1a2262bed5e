"""Groups and transactions on three brokers: exactly once, also when the coordinator dies in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.cluster.nodes import SECONDS_MAX, Cluster, until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


def transactional(cluster: Cluster, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": 20_000,
            "linger.ms": 0,
            "error_cb": lambda _error: None,
        }
    )
    retried(lambda: producer.init_transactions(10))
    return producer


def retried(step: object) -> None:
    """What the client itself calls retriable is done again, for as long as a test may take."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            step()  # type: ignore[operator]
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def consumer_of(cluster: Cluster, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "error_cb": lambda _error: None,
        }
    )
    consumer.subscribe([topic])
    return consumer


def read(consumer: Consumer, count: int) -> list[str]:
    values: list[str] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records: {values}"
        for message in consumer.consume(100, 0.2):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            values.append(value.decode())
    return values


def write(producer: Producer, topic: str, values: list[str], partitions: int = 3) -> None:
    """One record to each partition in turn, so that a transaction spans brokers."""
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % partitions)


def test_transactions_span_brokers(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    producers = [transactional(cluster, f"tx-{number}") for number in range(4)]
    wanted: list[str] = []
    for round_number in range(5):
        for number, producer in enumerate(producers):
            values = [f"{number}.{round_number}.{item}" for item in range(6)]
            producer.begin_transaction()
            write(producer, "orders", values)
            if (number + round_number) % 3 == 0:
                producer.abort_transaction(20)
            else:
                retried(lambda producer=producer: producer.commit_transaction(20))
                wanted += values
    consumer = consumer_of(cluster, "readers", "orders")
    try:
        assert sorted(read(consumer, len(wanted))) == sorted(wanted)
        assert not consumer.consume(1, 0.5)
    finally:
        consumer.close()


def test_offsets_commit_with_the_transaction_that_used_them(cluster: Cluster) -> None:
    for name in ("input", "output"):
        cluster.create_topic(name, partitions=3)
    source = transactional(cluster, "source")
    source.begin_transaction()
    write(source, "input", [str(number) for number in range(30)])
    retried(lambda: source.commit_transaction(20))
    consumer, producer = consumer_of(cluster, "copiers", "input"), transactional(cluster, "copier")
    copied = 0
    while copied < 30:
        messages = consumer.consume(7, 0.5)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("output", message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [position for position in positions if position.offset >= 0], consumer.consumer_group_metadata(), 20
        )
        retried(lambda: producer.commit_transaction(20))
        copied += len(messages)
    committed = consumer.committed([TopicPartition("input", index) for index in range(3)], timeout=10)
    assert all(position.offset > 0 for position in committed)
    consumer.close()
    reader = consumer_of(cluster, "readers", "output")
    try:
        assert sorted(read(reader, 30), key=int) == [str(number) for number in range(30)]
    finally:
        reader.close()


@pytest.mark.slow
def test_a_coordinator_that_dies_takes_no_transaction_and_no_offset_with_it(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    producers = [transactional(cluster, f"tx-{number}") for number in range(4)]
    consumer = consumer_of(cluster, "readers", "orders")
    wanted: list[str] = []
    seen: list[str] = []
    kept: dict[int, int] = {}
    for victim in (1, 2):
        for number, producer in enumerate(producers):
            values = [f"{victim}.{number}.{item}" for item in range(6)]
            producer.begin_transaction()
            write(producer, "orders", values)
            assert producer.flush(20) == 0
            if number == 1:
                cluster.nodes[victim].kill()
            retried(lambda producer=producer: producer.commit_transaction(20))
            wanted += values
        seen += read(consumer, len(wanted) - len(seen))
        retried(lambda: kept.update(offsets(consumer.commit(asynchronous=False))))
        cluster.nodes[victim].start()
        for topic in ("orders", "__consumer_offsets", "__transaction_state"):
            cluster.wait_in_sync(topic)
    assert sorted(seen) == sorted(wanted)
    consumer.close()
    assert set(kept) == {0, 1, 2}
    until(lambda: committed(cluster) == kept, "the group's offsets are where it read to")


def committed(cluster: Cluster) -> dict[int, int]:
    reader = consumer_of(cluster, "readers", "orders")
    try:
        return offsets(reader.committed([TopicPartition("orders", index) for index in range(3)], timeout=10))
    finally:
        reader.close()


def offsets(positions: list[TopicPartition] | None) -> dict[int, int]:
    """By partition. They count markers too, of which a new coordinator may write one that is there already again."""
    return {position.partition: position.offset for position in positions or []}
