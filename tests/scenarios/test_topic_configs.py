"""Topic configs do what they say, at once and without a restart."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaProducer

import ottla
from ottla.model.errors import ErrorCode
from ottla.wire.batch import iterate, set_max_timestamp
from ottla.wire.records import Record, build_batch
from tests.scenarios.raw_client import RawClient

TIMESTAMP_LOG_APPEND_TIME = 2


class Topic:
    """A topic to write to and read from."""

    def __init__(self, server: ottla.Server, name: str) -> None:
        self.server = server
        self.name = name
        self.admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})

    def configure(self, **configs: str) -> None:
        resource = ConfigResource(
            ResourceType.TOPIC,
            self.name,
            incremental_configs=[
                ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
                for key, value in configs.items()
            ],
        )
        self.admin.incremental_alter_configs([resource])[resource].result(10)

    def write(self, *values: bytes, key: bytes | None = None, **settings: object) -> None:
        failures: list[object] = []
        producer = Producer({"bootstrap.servers": self.server.bootstrap_servers, "linger.ms": 20, **settings})
        for value in values:
            producer.produce(
                self.name, value, key=key, on_delivery=lambda error, _: failures.append(error) if error else None
            )
        assert producer.flush(30) == 0
        if failures:
            raise KafkaException(failures[0])

    def read(self, count: int) -> list[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.server.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        consumer.assign([TopicPartition(self.name, 0, 0)])
        messages: list[Message] = []
        while len(messages) < count:
            message = consumer.poll(20)
            assert message is not None, f"only {len(messages)} of {count} records came"
            assert message.error() is None
            messages.append(message)
        consumer.close()
        return messages

    @property
    def codecs(self) -> set[int]:
        """The compression codecs that are really in the files."""
        files = Path(self.server.data, f"{self.name}-0").glob("*.log")
        return {header.codec for path in files for _, header in iterate(path.read_bytes())}


@pytest.fixture
def topic(ottla_server: ottla.Server, ottla_topic: str) -> Topic:
    return Topic(ottla_server, ottla_topic)


def test_log_append_time_is_the_brokers(topic: Topic) -> None:
    topic.configure(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    topic.write(b"a", b"b")

    for message in topic.read(2):
        kind, timestamp = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before <= timestamp <= time.time() * 1000 + 1000


@pytest.mark.parametrize(
    ("codec", "number"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)]
)
def test_the_topics_compression_wins_over_the_producers(topic: Topic, codec: str, number: int) -> None:
    topic.configure(compression_type=codec)
    values = [b"value %d" % n * 20 for n in range(50)]
    topic.write(*values, **{"compression.type": "lz4" if codec != "lz4" else "gzip"})

    assert [message.value() for message in topic.read(50)] == values
    assert topic.codecs == {number}


def test_a_batch_over_the_limit_is_refused_and_nothing_is_written(topic: Topic) -> None:
    topic.configure(max_message_bytes="1000")

    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        topic.write(b"x" * 5000)
    topic.write(b"small")
    assert [message.value() for message in topic.read(1)] == [b"small"]


def test_a_timestamp_far_from_now_is_refused(topic: Topic) -> None:
    topic.configure(message_timestamp_after_max_ms="1000")
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": topic.server.bootstrap_servers})
    producer.produce(
        topic.name,
        b"from tomorrow",
        timestamp=int(time.time() + 86_400) * 1000,
        on_delivery=lambda e, _: failures.append(e),
    )
    producer.flush(20)

    assert "INVALID_TIMESTAMP" in str(failures[0])


@pytest.mark.timeout(300)
def test_a_compacted_topic_wants_keys(topic: Topic) -> None:
    topic.configure(cleanup_policy="compact")

    with pytest.raises(KafkaException, match="INVALID_RECORD"):
        topic.write(b"no key")
    topic.write(b"with a key", key=b"k")
    assert [message.value() for message in topic.read(1)] == [b"with a key"]


@pytest.mark.timeout(300)
def test_a_producer_is_told_which_records_have_no_key(topic: Topic) -> None:
    topic.configure(cleanup_policy="compact")
    producer = KafkaProducer(bootstrap_servers=topic.server.bootstrap_servers, linger_ms=30_000)
    futures = [producer.send(topic.name, value=b"v", key=key) for key in (b"a", None, b"b", None)]
    producer.flush(60)
    producer.close()

    right, wrong = futures[::2], futures[1::2]
    for future in wrong:
        assert "Compacted topic cannot accept message without key" in str(future.exception)
    for future in right:
        assert future.exception is not None
        assert "without key" not in str(future.exception)


@pytest.mark.timeout(300)
def test_full_validation_names_the_record_that_is_too_old(topic: Topic) -> None:
    topic.configure(message_timestamp_before_max_ms="3600000")
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(at, now_ms - age, b"k", b"v") for at, age in enumerate([0, 0, 4_000_000, 0])])
    with contextlib.closing(RawClient.connect(topic.server.bootstrap_servers)) as client:
        assert client.produce_batch(topic.name, batch) == (0, 0), "its header says nothing of records in the middle"

        topic.configure(ottla_record_validation="full")
        outcome = client.produce_outcome(topic.name, batch)
        assert outcome.error_code == ErrorCode.INVALID_TIMESTAMP
        ((record, reason),) = outcome.record_errors
        assert record == 2
        assert str(now_ms - 4_000_000) in str(reason)
        assert "record 2" in str(outcome.error_message)

        young = build_batch([Record(at, now_ms, b"k", b"w") for at in range(2)])
        set_max_timestamp(memoryview(young), now_ms + 99_000_000)
        assert client.produce_batch(topic.name, young) == (0, 4)
    files = Path(topic.server.data, f"{topic.name}-0").glob("*.log")
    assert [header.max_timestamp for path in files for _, header in iterate(path.read_bytes())] == [now_ms, now_ms]
    assert len(topic.read(6)) == 6


def test_an_answer_waits_for_the_disk_where_the_topic_asks_for_it(topic: Topic) -> None:
    topic.configure(flush_messages="1")
    topic.write(*[b"%d" % number for number in range(20)])

    assert len(topic.read(20)) == 20


def test_unknown_and_malformed_configs_are_refused(topic: Topic) -> None:
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        topic.configure(no_such_key="1")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        topic.configure(retention_ms="soon")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        topic.admin.create_topics([NewTopic("bad-config", 1, 1, config={"segment.bytes": "-5"})])["bad-config"].result(
            10
        )
