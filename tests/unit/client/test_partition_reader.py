"""Raw batches for Spark: complete, in order, and an error rather than a gap."""

from __future__ import annotations

import pytest

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.errors import NotFoundError, OffsetOutOfRangeError, RequestTimeoutError
from ottla.client.fetching import FetchSettings
from ottla.client.partition_reader import PartitionReader
from ottla.client.producer import Producer, ProducerSettings
from ottla.model.ids import TopicPartition
from ottla.wire.batch import iterate
from ottla.wire.records import iterate as records_of
from tests.unit.client.conftest import NewTopic

SMALL = FetchSettings(partition_bytes_max=2_000, wait_ms_max=50)


@pytest.fixture
def filled(cluster: Cluster, new_topic: NewTopic) -> TopicPartition:
    partition = TopicPartition(new_topic(), 0)
    with Producer(cluster, ProducerSettings(batch_bytes=700)) as producer:
        for number in range(500):
            producer.send(partition.topic, b"%d" % number * 10)
    return partition


def offsets(reader: PartitionReader) -> list[int]:
    found: list[int] = []
    for fetched in reader:
        for position, header in iterate(fetched.records):
            batch = fetched.records[position : position + header.size]
            found += [record.offset for record in records_of(batch)]
    return found


def test_a_range_is_read_completely_in_many_fetches(cluster: Cluster, filled: TopicPartition) -> None:
    reader = PartitionReader(cluster, filled, start=0, end=500, settings=SMALL)
    assert offsets(reader) == list(range(500))
    assert reader.position == 500


def test_whole_batches_come_that_contain_the_range(cluster: Cluster, filled: TopicPartition) -> None:
    found = offsets(PartitionReader(cluster, filled, start=123, end=321, settings=SMALL))
    assert found == list(range(found[0], found[-1] + 1))
    assert found[0] <= 123
    assert found[-1] >= 320


def test_an_empty_range_asks_nobody(cluster: Cluster) -> None:
    assert list(PartitionReader(cluster, TopicPartition("client-never-was", 0), start=5, end=5)) == []


def test_lost_records_are_an_error_and_not_a_gap(cluster: Cluster, admin: Admin, filled: TopicPartition) -> None:
    admin.delete_records({filled: 200})
    with pytest.raises(OffsetOutOfRangeError) as caught:
        list(PartitionReader(cluster, filled, start=100, end=500))
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (200, 500)


def test_an_end_that_never_comes_is_an_error(cluster: Cluster, filled: TopicPartition) -> None:
    reader = PartitionReader(cluster, filled, start=0, end=501, settings=SMALL, stall_ms_max=200)
    with pytest.raises(RequestTimeoutError, match="offset 500"):
        list(reader)


def test_a_topic_that_is_not_there_is_an_error(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError):
        list(PartitionReader(cluster, TopicPartition("client-never-was", 0), start=0, end=1))


def test_two_readers_may_take_turns_on_one_cluster(cluster: Cluster, filled: TopicPartition) -> None:
    one = PartitionReader(cluster, filled, start=0, end=500, settings=SMALL)
    two = PartitionReader(cluster, filled, start=0, end=500, settings=SMALL)
    for first, second in zip(one, two, strict=True):
        assert bytes(first.records) == bytes(second.records)
