"""Offsets decide where a reader starts: one too many is a lost record."""

from __future__ import annotations

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import NotFoundError
from ottla.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, Isolation, list_offsets
from ottla.client.producer import Producer
from ottla.model.ids import TopicPartition
from tests.unit.client.conftest import NewTopic


def test_offsets_of_an_empty_partition(cluster: Cluster, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    for asked in (EARLIEST, LATEST):
        assert list_offsets(cluster, {partition: asked})[partition].offset == 0
    assert list_offsets(cluster, {partition: 1_000})[partition].offset == -1


def test_an_offset_is_found_by_time(cluster: Cluster, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send(partition.topic, b"x", timestamp_ms=1_700_000_000_000 + number * 1_000)

    def at(time_ms: int) -> tuple[int, int]:
        found = list_offsets(cluster, {partition: time_ms})[partition]
        return found.offset, found.timestamp

    assert at(0) == (0, 1_700_000_000_000)
    assert at(1_700_000_003_000) == (3, 1_700_000_003_000)
    assert at(1_700_000_003_001) == (4, 1_700_000_004_000)
    assert at(1_700_000_009_001) == (-1, -1)
    assert at(MAX_TIMESTAMP) == (9, 1_700_000_009_000)


def test_many_partitions_are_asked_for_at_once(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic(partitions=5)
    with Producer(cluster) as producer:
        for number in range(5):
            for _ in range(number):
                producer.send(name, b"x", partition=number)
    partitions = [TopicPartition(name, number) for number in range(5)]
    found = list_offsets(cluster, dict.fromkeys(partitions, LATEST), Isolation.READ_COMMITTED)
    assert [found[partition].offset for partition in partitions] == [0, 1, 2, 3, 4]


def test_a_partition_that_is_not_there_is_named(cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic()
    with pytest.raises(NotFoundError, match=f"{name}-9"):
        list_offsets(cluster, {TopicPartition(name, 9): LATEST})
