"""The Kafka clients that Python people use, each with what its users do first."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition

import ottla

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 500


def value_of(number: int) -> bytes:
    return b"value %d " % number * (number % 7 + 1)


def read_with_confluent(bootstrap_servers: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    while len(records) < count:
        message = consumer.poll(20)
        assert message is not None, "the consumer hangs"
        assert message.error() is None, message.error()
        records.append((message.key(), message.value()))
    consumer.close()
    return records


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_it_wrote_in_every_codec(
    ottla_server: ottla.Server, ottla_topic: str, codec: str
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": ottla_server.bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
        }
    )
    for number in range(RECORDS):
        producer.produce(ottla_topic, value_of(number), key=b"%d" % number, headers=[("number", b"%d" % number)])
    assert producer.flush(20) == 0

    expected = [(b"%d" % number, value_of(number)) for number in range(RECORDS)]
    assert read_with_confluent(ottla_server.bootstrap_servers, ottla_topic, RECORDS) == expected


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_reads_what_it_wrote(ottla_server: ottla.Server, ottla_topic: str, codec: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=ottla_server.bootstrap_servers, compression_type=codec, acks="all")
    for number in range(RECORDS):
        producer.send(ottla_topic, value_of(number), key=b"%d" % number)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=ottla_server.bootstrap_servers, consumer_timeout_ms=20_000)
    partition = KafkaPythonTopicPartition(ottla_topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values = [next(consumer).value for _ in range(RECORDS)]
    assert consumer.end_offsets([partition]) == {partition: RECORDS}
    consumer.close()

    assert values == [value_of(number) for number in range(RECORDS)]


def test_aiokafka_reads_what_it_wrote(ottla_server: ottla.Server, ottla_topic: str) -> None:
    async def write_and_read() -> list[bytes | None]:
        servers = ottla_server.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            for number in range(RECORDS):
                await producer.send(ottla_topic, value_of(number))
            await producer.flush()
        consumer = AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(ottla_topic, 0)])
            await consumer.seek_to_beginning()
            return [(await consumer.getone()).value for _ in range(RECORDS)]
        finally:
            await consumer.stop()

    values = asyncio.run(asyncio.wait_for(write_and_read(), 60))
    assert values == [value_of(number) for number in range(RECORDS)]


def test_a_missing_topic_is_created_where_the_client_allows_it(ottla_server: ottla.Server) -> None:
    producer = Producer({"bootstrap.servers": ottla_server.bootstrap_servers})
    producer.produce("made-on-the-way", b"hello")

    assert producer.flush(20) == 0
    assert read_with_confluent(ottla_server.bootstrap_servers, "made-on-the-way", 1) == [(None, b"hello")]


def test_admin_client_creates_grows_alters_and_deletes_topics(ottla_server: ottla.Server) -> None:
    admin = AdminClient({"bootstrap.servers": ottla_server.bootstrap_servers})
    admin.create_topics([NewTopic("grows", 1, 1)])["grows"].result(10)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("grows", 1, 1)])["grows"].result(10)
    admin.create_partitions([NewPartitions("grows", 3)])["grows"].result(10)
    assert len(admin.list_topics("grows", timeout=10).topics["grows"].partitions) == 3

    resource = ConfigResource(ConfigResource.Type.TOPIC, "grows")
    configs = admin.describe_configs([resource])[resource].result(10)
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    admin.delete_topics(["grows"])["grows"].result(10)
    admin.create_topics([NewTopic("grows", 2, 1)])["grows"].result(10)
    assert len(admin.list_topics("grows", timeout=10).topics["grows"].partitions) == 2


def test_an_administrator_who_asks_what_may_be_done_is_told(ottla_server: ottla.Server, ottla_topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": ottla_server.bootstrap_servers})
    for is_asked, count in ((True, 7), (False, None)):
        cluster = admin.describe_cluster(include_authorized_operations=is_asked).result(10)
        operations = cluster.authorized_operations
        assert (None if operations is None else len(operations)) == count
    topics = admin.describe_topics(TopicCollection([ottla_topic]), include_authorized_operations=True)
    assert len(topics[ottla_topic].result(10).authorized_operations) == 8
    groups = admin.describe_consumer_groups(["nobody"], include_authorized_operations=True)
    assert len(groups["nobody"].result(10).authorized_operations) == 5


def test_offsets_are_found_by_timestamp_through_compressed_batches(
    ottla_server: ottla.Server, ottla_topic: str
) -> None:
    now_ms = int(time.time() * 1000) - 100_000
    producer = Producer(
        {"bootstrap.servers": ottla_server.bootstrap_servers, "compression.type": "zstd", "linger.ms": 50}
    )
    for number in range(100):
        producer.produce(ottla_topic, b"v", timestamp=now_ms + number * 10)
    assert producer.flush(20) == 0
    admin = AdminClient({"bootstrap.servers": ottla_server.bootstrap_servers})
    partition = TopicPartition(ottla_topic, 0)

    def look_up(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({partition: spec})[partition].result(10).offset)

    assert look_up(OffsetSpec.for_timestamp(now_ms + 421)) == 43
    assert look_up(OffsetSpec.for_timestamp(now_ms)) == 0
    assert look_up(OffsetSpec.max_timestamp()) == 99
    assert look_up(OffsetSpec.earliest()) == 0
    assert look_up(OffsetSpec.latest()) == 100
    assert look_up(OffsetSpec.for_timestamp(now_ms + 10_000)) == -1


def test_a_consumer_gets_a_record_while_it_waits(ottla_server: ottla.Server, ottla_topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": ottla_server.bootstrap_servers,
            "group.id": "unused",
            "fetch.wait.max.ms": 30_000,
        }
    )
    consumer.assign([TopicPartition(ottla_topic, 0, 0)])
    assert consumer.poll(0.5) is None
    producer = Producer({"bootstrap.servers": ottla_server.bootstrap_servers, "linger.ms": 0})
    producer.produce(ottla_topic, b"at last")
    began = time.monotonic()
    assert producer.flush(20) == 0
    message = consumer.poll(20)
    waited = time.monotonic() - began
    consumer.close()

    assert message is not None
    assert message.value() == b"at last"
    assert waited < 15, "the record came with the timeout of the fetch, not when it was written"
