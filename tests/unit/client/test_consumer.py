"""Every record once, in order, from where it was asked for."""

from __future__ import annotations

import pickle
import time
import tracemalloc

import pytest

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.consumer import AtTime, Consumer, ConsumerSettings, OutOfRange
from ottla.client.errors import CorruptBatchError, OffsetOutOfRangeError
from ottla.client.fetching import FetchSettings
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.producer import Producer, ProducerSettings
from ottla.model.ids import TopicPartition
from ottla.wire.batch import HEADER_BYTES, build
from ottla.wire.compression import Codec, compress
from ottla.wire.records import Record, build_batch
from ottla.wire.varint import signed
from tests.scenarios.raw_client import RawClient
from tests.unit.client.conftest import NewTopic

BASE_MS = 1_700_000_000_000


@pytest.fixture
def filled(cluster: Cluster, new_topic: NewTopic) -> TopicPartition:
    """A partition with 100 records, one for each second, in several batches."""
    partition = TopicPartition(new_topic(), 0)
    with Producer(cluster, ProducerSettings(batch_bytes=400)) as producer:
        for number in range(100):
            producer.send(partition.topic, b"%d" % number, timestamp_ms=BASE_MS + number * 1_000)
    return partition


def take(consumer: Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        records = consumer.poll(5_000, records_max=count - len(offsets))
        assert records, "no records came"
        offsets += [record.offset for record in records]
    return offsets


@pytest.mark.parametrize(
    ("start", "first"),
    [(EARLIEST, 0), (42, 42), (AtTime(BASE_MS + 9_500), 10), (AtTime(0), 0), (99, 99)],
)
def test_reading_starts_where_it_was_asked_to(
    cluster: Cluster, filled: TopicPartition, start: int | AtTime, first: int
) -> None:
    consumer = Consumer(cluster)
    consumer.assign({filled: start})
    assert take(consumer, 100 - first) == list(range(first, 100))
    assert consumer.position(filled) == 100


@pytest.mark.parametrize("start", [LATEST, AtTime(BASE_MS + 1_000_000_000)])
def test_the_end_waits_for_what_comes_next(cluster: Cluster, filled: TopicPartition, start: int | AtTime) -> None:
    consumer = Consumer(cluster)
    consumer.assign({filled: start})
    assert consumer.poll(50) == []
    with Producer(cluster) as producer:
        producer.send(filled.topic, b"new")
    assert take(consumer, 1) == [100]


@pytest.mark.parametrize("sessions", [True, False])
def test_many_partitions_are_read_together(cluster: Cluster, new_topic: NewTopic, sessions: bool) -> None:
    name = new_topic(partitions=4)
    consumer = Consumer(cluster, ConsumerSettings(sessions=sessions))
    consumer.assign({TopicPartition(name, number): EARLIEST for number in range(4)})
    seen: list[tuple[int, int]] = []
    for round_number in range(3):
        with Producer(cluster) as producer:
            for number in range(40):
                producer.send(name, b"x", partition=number % 4)
        while len(seen) < (round_number + 1) * 40:
            seen += [(record.partition, record.offset) for record in consumer.poll(5_000)]
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(30)]


def test_batches_larger_than_a_fetch_still_come(cluster: Cluster, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    with Producer(cluster, ProducerSettings(batch_bytes=200_000)) as producer:
        for _ in range(6):
            producer.send(partition.topic, b"x" * 100_000)
    small = FetchSettings(partition_bytes_max=1_000, bytes_max=1_000)
    consumer = Consumer(cluster, ConsumerSettings(fetch=small))
    consumer.assign({partition: EARLIEST})
    assert take(consumer, 6) == list(range(6))


def test_a_poll_gives_no_more_than_it_was_asked_for(cluster: Cluster, filled: TopicPartition) -> None:
    consumer = Consumer(cluster)
    consumer.assign({filled: EARLIEST})
    first = consumer.poll(5_000, records_max=3)
    assert [record.offset for record in first] == [0, 1, 2]
    assert consumer.position(filled) == 3


def test_a_seek_throws_away_what_was_fetched_before(cluster: Cluster, filled: TopicPartition) -> None:
    consumer = Consumer(cluster)
    consumer.assign({filled: EARLIEST})
    take(consumer, 5)
    consumer.seek(filled, 50)
    assert take(consumer, 5) == [50, 51, 52, 53, 54]
    consumer.seek(filled, 7)
    assert take(consumer, 3) == [7, 8, 9]


def test_an_answer_that_was_under_way_during_a_seek_is_not_taken_for_the_new_position(
    cluster: Cluster, filled: TopicPartition
) -> None:
    consumer = Consumer(cluster)
    consumer.assign({filled: 60})
    consumer.poll(0)
    consumer.seek(filled, 7)
    assert take(consumer, 3) == [7, 8, 9]


def test_a_dropped_partition_gives_no_more_records(cluster: Cluster, filled: TopicPartition) -> None:
    consumer = Consumer(cluster)
    consumer.assign({filled: EARLIEST})
    take(consumer, 5)
    consumer.drop(filled)
    assert consumer.poll(10) == []
    assert consumer.assigned == ()


def test_an_offset_that_is_gone_is_an_error_with_the_range_that_is_there(
    cluster: Cluster, admin: Admin, filled: TopicPartition
) -> None:
    admin.delete_records({filled: 30})
    consumer = Consumer(cluster)
    consumer.assign({filled: 10})
    with pytest.raises(OffsetOutOfRangeError, match="30 to 100"):
        consumer.poll(5_000)


@pytest.mark.parametrize(("policy", "first"), [(OutOfRange.EARLIEST, 30), (OutOfRange.LATEST, 100)])
def test_an_offset_that_is_gone_may_be_replaced(
    cluster: Cluster, admin: Admin, filled: TopicPartition, policy: OutOfRange, first: int
) -> None:
    admin.delete_records({filled: 30})
    consumer = Consumer(cluster, ConsumerSettings(out_of_range=policy))
    consumer.assign({filled: 10})
    deadline = time.monotonic() + 10
    while consumer.position(filled) < first and time.monotonic() < deadline:
        consumer.poll(50, records_max=1)
    assert consumer.position(filled) in (first, first + 1)


def test_what_came_before_a_damaged_record_is_handed_out_before_the_error(
    cluster: Cluster, filled: TopicPartition, bootstrap: str
) -> None:
    sound = bytes(build_batch([Record(0, BASE_MS, None, b"sound")]))[HEADER_BYTES:]
    raw = RawClient.connect(bootstrap)
    assert raw.produce_batch(filled.topic, build(sound + b"nonsense", 0, 1, BASE_MS, BASE_MS, 2)) == (0, 100)
    raw.close()
    consumer = Consumer(cluster)
    consumer.assign({filled: 95})
    taken = take(consumer, 6)
    with pytest.raises(CorruptBatchError, match="the batch at offset 100"):
        take(consumer, 1)
    assert taken == list(range(95, 101))


def test_a_few_kilobytes_that_are_very_many_records_are_not_all_decoded_at_once(
    cluster: Cluster, new_topic: NewTopic, bootstrap: str
) -> None:
    partition, count = TopicPartition(new_topic(), 0), 300_000
    records = (b"\x00\x00" + signed(number) + b"\x01\x01\x00" for number in range(count))
    body = compress(Codec.ZSTD, b"".join([signed(len(record)) + record for record in records]))
    raw = RawClient.connect(bootstrap)
    assert raw.produce_batch(partition.topic, build(body, Codec.ZSTD, count - 1, BASE_MS, BASE_MS, count)) == (0, 0)
    raw.close()
    consumer = Consumer(cluster)
    consumer.assign({partition: EARLIEST})
    tracemalloc.start()
    try:
        assert take(consumer, 10) == list(range(10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30 << 20


def test_settings_survive_the_way_to_an_executor() -> None:
    settings = ConsumerSettings(fetch=FetchSettings(rack="a"), out_of_range=OutOfRange.LATEST)
    assert pickle.loads(pickle.dumps(settings)) == settings
