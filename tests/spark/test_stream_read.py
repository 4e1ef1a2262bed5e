"""Streams read everything once, go on where they stopped, and say so when something is gone."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.deadline import Deadline
from ottla.client.groups import GroupAdmin
from ottla.client.settings import ClientSettings
from ottla.model.ids import TopicPartition
from ottla.spark import LagListener
from tests.spark.conftest import STREAM_SECONDS_MAX, Lab


def add(lab: Lab, topic: str, values: range, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": lab.bootstrap, "log_level": 0, "topic.metadata.refresh.interval.ms": 100})
    for number in values:
        producer.produce(topic, str(number), partition=number % partitions)
    producer.flush()


def ranges(batches: list[dict[str, Any]], topic: str) -> list[dict[str, int]]:
    return [json.loads(batch["sources"][0]["endOffset"])[topic] for batch in batches]


def test_a_stream_goes_on_where_it_stopped_also_in_new_partitions(lab: Lab) -> None:
    topic, checkpoint = lab.topic(), lab.checkpoint()
    add(lab, topic, range(20))
    first = lab.run(lab.stream(topic, maxOffsetsPerTrigger=10), checkpoint, "noop")
    assert [batch["numInputRows"] for batch in first] == [10, 10]
    assert ranges(first, topic) == [{"0": 5, "1": 5}, {"0": 10, "1": 10}]
    with Admin.connect(lab.bootstrap) as admin:
        admin.set_partition_count(topic, 3)
    add(lab, topic, range(9), partitions=3)
    second = lab.run(lab.stream(topic), checkpoint, "noop")
    assert ranges(second, topic) == [{"0": 13, "1": 13, "2": 3}]
    assert sum(batch["numInputRows"] for batch in second) == 9
    group_id = f"spark-ottla-source-{second[0]['id']}"
    with Cluster(ClientSettings.of(lab.bootstrap)) as cluster:
        committed = GroupAdmin(cluster).fetch_offsets(group_id)
    assert {each.partition: found.offset for each, found in committed.items()} == {0: 13, 1: 13, 2: 3}


def test_a_running_stream_from_the_latest_offset_and_its_lag(lab: Lab) -> None:
    topic, reports = lab.topic(), []
    add(lab, topic, range(6))
    listener = LagListener(reports.append)
    lab.spark.streams.addListener(listener)
    query = (
        lab.stream(topic, startingOffsets="latest")
        .selectExpr("cast(value as string) as value")
        .writeStream.format("memory")
        .queryName("seen")
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        # The first batch is empty and pins the start; until it is done nothing that is added counts as new.
        while query.lastProgress is None:
            query.awaitTermination(0.1)
        add(lab, topic, range(100, 104))
        query.processAllAvailable()
        assert sorted(row.value for row in lab.spark.table("seen").collect()) == ["100", "101", "102", "103"]
        told = Deadline(1000 * STREAM_SECONDS_MAX)
        while sum(report.rows for report in reports) < 4 and not told.passed():
            query.awaitTermination(0.1)  # events come a little later
    finally:
        query.stop()
        lab.spark.streams.removeListener(listener)
    assert listener.reports["seen"].lag == 0
    assert sum(report.rows for report in reports) == 4
    assert 'ottla_spark_query_lag_records{query="seen"} 0' in listener.metrics()


def test_data_that_is_gone_fails_a_stream_or_is_left_out(lab: Lab) -> None:
    topic, checkpoint = lab.topic(1), lab.checkpoint()
    add(lab, topic, range(5), partitions=1)
    lab.run(lab.stream(topic), checkpoint, "noop")
    add(lab, topic, range(5), partitions=1)
    with Admin.connect(lab.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 8})
    assert "Some data may have been lost" in lab.refusal(lab.stream(topic), checkpoint)
    rest = lab.run(lab.stream(topic, failOnDataLoss="false"), checkpoint, "noop")
    assert [batch["numInputRows"] for batch in rest] == [2]
