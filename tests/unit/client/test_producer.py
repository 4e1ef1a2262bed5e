"""What is sent arrives, once, in order, where it belongs; and what does not arrive is said."""

from __future__ import annotations

import pickle

import pytest

from ottla.client.batch_sender import Delivery
from ottla.client.cluster import Cluster
from ottla.client.consumer import ConsumedRecord, Consumer
from ottla.client.errors import BrokerError, BufferFullError, DeliveryError, NotFoundError
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.partitioner import partition_for_key
from ottla.client.producer import Producer, ProducerSettings
from ottla.model.errors import ConfigError, ErrorCode
from ottla.model.ids import TopicPartition
from tests.unit.client.conftest import NewTopic
from tests.unit.client.scripted_broker import PRODUCE, TOPIC, ScriptedBroker


def read_all(cluster: Cluster, topic: str) -> list[ConsumedRecord]:
    partitions = [TopicPartition(topic, entry.partition) for entry in cluster.topic(topic).partitions]
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    consumer = Consumer(cluster)
    consumer.assign(dict.fromkeys(partitions, EARLIEST))
    records: list[ConsumedRecord] = []
    while any(consumer.position(partition) < ends[partition].offset for partition in partitions):
        records += consumer.poll(5_000)
    return records


def send_until_refused(producer: Producer, value: bytes) -> None:
    for _ in range(1_000_000):
        producer.send(TOPIC, value)


def test_a_record_keeps_everything_it_was_given(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic(partitions=2)
    headers = (("trace", b"\x00\xff"), ("trace", b"again"), ("none", None))
    with Producer(cluster) as producer:
        producer.send(name, b"v", key=b"k", headers=headers, partition=1, timestamp_ms=1_700_000_000_123)
    (record,) = read_all(cluster, name)
    assert record == ConsumedRecord(name, 1, 0, 1_700_000_000_123, False, b"k", b"v", headers)


def test_null_and_empty_are_not_the_same(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic()
    with Producer(cluster) as producer:
        producer.send(name, None, key=b"")
        producer.send(name, b"", key=None)
    assert [(record.key, record.value) for record in read_all(cluster, name)] == [(b"", None), (None, b"")]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_in_every_codec(cluster: Cluster, new_topic: NewTopic, compression: str) -> None:
    name = new_topic()
    sent = [b"value %d " % number * 20 for number in range(2_000)]
    with Producer(cluster, ProducerSettings(compression=compression, batch_bytes=50_000)) as producer:
        for value in sent:
            producer.send(name, value)
    assert [record.value for record in read_all(cluster, name)] == sent


@pytest.mark.parametrize(
    "settings",
    [
        ProducerSettings(),
        ProducerSettings(idempotent=False),
        ProducerSettings(idempotent=False, acks=1),
        ProducerSettings(batch_bytes=100, linger_ms=0),
    ],
    ids=["idempotent", "acks-all", "acks-1", "small-batches"],
)
def test_the_records_of_a_key_stay_in_order(cluster: Cluster, new_topic: NewTopic, settings: ProducerSettings) -> None:
    name = new_topic(partitions=3)
    with Producer(cluster, settings) as producer:
        for number in range(300):
            producer.send(name, b"%d" % number, key=b"key-%d" % (number % 7))
    assert producer.delivered_records == 300
    records = read_all(cluster, name)
    for key in range(7):
        found = [record for record in records if record.key == b"key-%d" % key]
        assert [int(record.value or b"") for record in found] == list(range(key, 300, 7))
        assert {record.partition for record in found} == {partition_for_key(b"key-%d" % key, 3)}


def test_without_acks_records_arrive_all_the_same(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic()
    with Producer(cluster, ProducerSettings(acks=0, idempotent=False)) as producer:
        producer.send(name, b"fire and forget")
    partition = TopicPartition(name, 0)
    # Requests of a connection are served in order, so this answer comes after the record was stored.
    assert list_offsets(cluster, {partition: LATEST})[partition].offset == 1


def test_an_old_batch_is_sent_without_a_flush(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic()
    producer = Producer(cluster, ProducerSettings(linger_ms=1))
    producer.send(name, b"x")
    while producer.delivered_records == 0:
        producer.poll(50)
    producer.close()


def test_where_a_batch_went_is_reported(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic()
    reports: list[Delivery] = []
    producer = Producer(cluster, on_delivery=reports.append)
    for _ in range(2):
        producer.send(name, b"x")
        producer.send(name, b"y")
        producer.flush()
    assert [(report.partition, report.record_count, report.base_offset) for report in reports] == [
        (TopicPartition(name, 0), 2, 0),
        (TopicPartition(name, 0), 2, 2),
    ]


def test_a_record_that_is_too_large_is_an_error(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic(max_message_bytes="1000")
    producer = Producer(cluster)
    producer.send(name, b"x" * 5_000)
    with pytest.raises(DeliveryError, match="MESSAGE_TOO_LARGE") as caught:
        producer.flush()
    assert caught.value.failed_records == 1
    assert isinstance(caught.value.__cause__, BrokerError)
    producer.send(name, b"small")
    producer.close()
    assert producer.delivered_records == 1


def test_a_topic_or_partition_that_is_not_there_is_an_error(cluster: Cluster, new_topic: NewTopic) -> None:
    with pytest.raises(NotFoundError, match="0 to 0"):
        Producer(cluster).send(new_topic(), b"x", partition=5)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (ProducerSettings(acks=1), "enable.idempotence"),
        (ProducerSettings(acks=2, idempotent=False), "acks"),
        (ProducerSettings(compression="brotli"), "compression.type"),
    ],
)
def test_settings_that_do_not_go_together_are_named(settings: ProducerSettings, key: str) -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster, pytest.raises(ConfigError, match=key):
        Producer(cluster, settings)


def test_settings_survive_the_way_to_an_executor() -> None:
    settings = ProducerSettings(compression="zstd", acks=-1)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_memory_is_bounded_while_a_broker_takes_nothing() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings(api_timeout_ms=200)) as cluster:
        broker.produces(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000)
        producer = Producer(cluster, ProducerSettings(batch_bytes=1_000, buffer_bytes_max=10_000, idempotent=False))
        with pytest.raises(BufferFullError, match="buffer_bytes_max"):
            send_until_refused(producer, b"x" * 500)
        assert producer._buffered() <= 10_000 + 1_000


def test_a_lost_batch_is_told_before_more_records_are_taken() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        broker.produces(ErrorCode.INVALID_RECORD)
        producer = Producer(cluster, ProducerSettings(linger_ms=0, idempotent=False))
        with pytest.raises(DeliveryError, match="INVALID_RECORD"):
            send_until_refused(producer, b"x")
        assert PRODUCE in broker.served
