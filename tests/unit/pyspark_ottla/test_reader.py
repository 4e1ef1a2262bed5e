"""The batch reader, without Spark's Java side: what is read, and what becomes of offsets that are gone."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.errors import CannotConnectError, NotFoundError
from ottla.client.producer import Producer
from ottla.client.settings import ClientSettings
from ottla.model.ids import TopicPartition
from pyspark_ottla.offsets import OffsetRange
from pyspark_ottla.options import batch_options
from pyspark_ottla.reader import (
    CLUSTERS_PER_WORKER_MAX,
    BatchReader,
    DataLossError,
    RangePartition,
    drop_cluster,
    read_range,
    worker_cluster,
)
from pyspark_ottla.schema import arrow_schema
from tests.unit.pyspark_ottla.tables import rows_of, schema_of

NewTopic = Callable[..., str]


def fill(cluster: Cluster, topic: str, partition: int, count: int) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, key=b"k", headers=(("h", b"1"),), partition=partition)


def offsets(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_everything_is_read(bootstrap: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    fill(cluster, topic, 0, 20)
    fill(cluster, topic, 1, 3)
    rows = rows_of(bootstrap, topic, includeHeaders="true", minPartitions="7", maxRecordsPerPartition="4")
    assert offsets(rows) == [(0, number) for number in range(20)] + [(1, number) for number in range(3)]
    assert {row["topic"] for row in rows} == {topic}
    assert {row["key"] for row in rows} == {b"k"}
    assert all(row["headers"] == [{"key": "h", "value": b"1"}] for row in rows)
    ends = json.dumps({topic: {"0": 12, "1": -1}})
    starts = json.dumps({topic: {"0": 10, "1": -2}})
    part = rows_of(bootstrap, topic, "partition", "offset", startingOffsets=starts, endingOffsets=ends)
    assert offsets(part) == [(0, 10), (0, 11), (1, 0), (1, 1), (1, 2)]


def test_offsets_that_are_gone(bootstrap: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, 0, 10)
    Admin(cluster).delete_records({TopicPartition(topic, 0): 4})
    starts = json.dumps({topic: {"0": 1}})
    with pytest.raises(DataLossError, match=r"offsets 1 to 10 of .*failOnDataLoss"):
        rows_of(bootstrap, topic, startingOffsets=starts, includeHeaders="true")
    rows = rows_of(bootstrap, topic, "partition", "offset", startingOffsets=starts, failOnDataLoss="false")
    assert offsets(rows) == [(0, number) for number in range(4, 10)]
    beyond = json.dumps({topic: {"0": 50}})
    with pytest.raises(DataLossError, match=r"the start 50 of .* is after its end 10"):
        rows_of(bootstrap, topic, "offset", startingOffsets=beyond)
    assert rows_of(bootstrap, topic, "offset", startingOffsets=beyond, failOnDataLoss="false") == []


def test_a_topic_that_goes_while_it_is_read(bootstrap: str, cluster: Cluster, new_topic: NewTopic) -> None:
    del cluster, new_topic
    gone = RangePartition(OffsetRange(TopicPartition("not-there", 0), 0, 5))
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "not-there"}
    schema = arrow_schema(schema_of("value"))
    with pytest.raises(DataLossError, match="offsets 0 to 5 of not-there-0 cannot be read"):
        list(read_range(gone, batch_options(given), schema))
    assert list(read_range(gone, batch_options({**given, "failOnDataLoss": "false"}), schema)) == []


def test_a_topic_that_is_not_there(bootstrap: str) -> None:
    with pytest.raises(NotFoundError, match="not-there"):
        rows_of(bootstrap, "not-there", "value")


def test_nobody_at_the_address() -> None:
    with pytest.raises(CannotConnectError, match=r"127\.0\.0\.1:1"):
        rows_of("127.0.0.1:1", "t", "value", **{"kafka.default.api.timeout.ms": "500"})


def test_a_reader_and_its_partitions_travel(bootstrap: str, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, 0, 3)
    options = batch_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    reader = pickle.loads(pickle.dumps(BatchReader(options, schema_of("offset"))))
    (part,) = pickle.loads(pickle.dumps(reader.partitions()))
    assert [row["offset"] for table in reader.read(part) for row in table.to_pylist()] == [0, 1, 2]


def test_a_worker_keeps_its_connections(bootstrap: str) -> None:
    settings = ClientSettings.of(bootstrap)
    first = worker_cluster(settings)
    assert worker_cluster(settings) is first
    for number in range(CLUSTERS_PER_WORKER_MAX):
        worker_cluster(ClientSettings(client_id=str(number)))
    assert worker_cluster(settings) is not first
    for number in range(CLUSTERS_PER_WORKER_MAX):
        drop_cluster(ClientSettings(client_id=str(number)))


def test_a_reader_that_is_left_early_leaves_no_answer_behind(
    bootstrap: str, cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    fill(cluster, topic, 0, 3)
    options = batch_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    before = worker_cluster(options.settings)
    part = RangePartition(OffsetRange(TopicPartition(topic, 0), 0, 3))
    iterator: Any = read_range(part, options, arrow_schema(schema_of("offset")))
    next(iterator)
    iterator.close()
    assert worker_cluster(options.settings) is not before


def test_a_partition_that_is_newer_than_what_a_worker_knows(
    bootstrap: str, cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    options = batch_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    worker_cluster(options.settings).topic(topic)
    Admin(cluster).set_partition_count(topic, 2)
    cluster.forget(topic)
    fill(cluster, topic, 1, 2)
    part = RangePartition(OffsetRange(TopicPartition(topic, 1), 0, 2))
    tables = list(read_range(part, options, arrow_schema(schema_of("offset"))))
    assert [row["offset"] for table in tables for row in table.to_pylist()] == [0, 1]


def test_no_partitions_are_read_as_none(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    options = batch_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    reader = BatchReader(options, schema_of("offset"))
    assert reader.partitions() == []
    assert list(reader.read(None)) == []
