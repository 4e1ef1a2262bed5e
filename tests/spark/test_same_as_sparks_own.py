"""What Spark's own connector reads, `format("ottla")` reads: row by row, on topics with everything in them.

The connector comes from `python -m bench.tools`; where it cannot be had there is nothing to compare with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from bench.errors import NotMeasured
from bench.systems import Kafka
from bench.tools import Tools, cache_directory, kafka_jars
from ottla.client.deadline import Deadline
from ottla.spark import from_json_topic
from tests.spark.conftest import Lab, connector_jars
from tests.spark.test_batch_read import CODECS, fill, in_transactions
from tests.spark.test_sink import committed
from tests.spark.test_stream_read import add

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COMPACTED_MS_MAX = 60_000
needs_connector = pytest.mark.skipif(not connector_jars(), reason="Spark's own Kafka connector was not fetched")


def sorted_rows(df: DataFrame) -> list[Any]:
    return sorted(df.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def assert_same(lab: Lab, topics: str, **options: Any) -> int:
    """Both read the same, columns included; returns how many rows there were."""
    frames = [lab.read(topics, name, **options) for name in ("kafka", "ottla")]
    assert frames[0].schema.simpleString() == frames[1].schema.simpleString()
    rows = [sorted_rows(frame) for frame in frames]
    assert rows[0]
    assert rows[0] == rows[1], options
    return len(rows[0])


@needs_connector
def test_codecs_headers_nulls_and_every_way_to_say_which_rows(lab: Lab) -> None:
    first, second = lab.topic(), lab.topic(1)
    fill(lab, first)
    in_transactions(lab, second)
    ends = json.dumps({first: {"0": 55, "1": -1}, second: {"0": 5}})
    starts = json.dumps({first: {"0": 7, "1": -2}, second: {"0": 1}})
    for options in (
        {"includeHeaders": "true"},
        {"startingOffsets": starts, "endingOffsets": ends},
        {"kafka.isolation.level": "read_committed", "minPartitions": 7},
        {"startingTimestamp": "1000", "endingTimestamp": "4000000000000"},
    ):
        assert_same(lab, f"{first},{second}", **options)


@needs_connector
def test_gaps_of_compaction_in_every_codec(lab: Lab) -> None:
    topic = lab.topic(1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": lab.bootstrap, "compression.type": codec, "log_level": 0})
        for number in range(100):
            producer.produce(topic, f"{codec}-{number}", f"{codec}-{number % 7}", partition=0)
        producer.flush()
    time.sleep(0.15)  # Older than segment.ms, so that the next record seals the segment.
    producer.produce(topic, "end", "end", partition=0)
    producer.flush()
    deadline = Deadline(COMPACTED_MS_MAX)
    while lab.read(topic).count() > 36 and not deadline.passed():
        pass
    assert assert_same(lab, topic) == 36
    inside = json.dumps({topic: {"0": 98}}), json.dumps({topic: {"0": 350}})
    assert assert_same(lab, topic, startingOffsets=inside[0], endingOffsets=inside[1], minPartitions=3) == 16


@needs_connector
def test_transactions_that_are_committed_aborted_and_open_in_batch_and_stream(lab: Lab) -> None:
    topic = lab.topic(1)
    in_transactions(lab, topic)
    still_open = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"{topic}-open", "log_level": 0})
    still_open.init_transactions()
    still_open.begin_transaction()
    still_open.produce(topic, "open", partition=0)
    still_open.flush()
    plain = Producer({"bootstrap.servers": lab.bootstrap, "log_level": 0})
    plain.produce(topic, "after", partition=0)
    plain.flush()
    for level, count in (("read_uncommitted", 8), ("read_committed", 4)):
        isolation = {"kafka.isolation.level": level}
        assert assert_same(lab, topic, **isolation) == count
        tables = [f"{name}_{count}" for name in ("kafka", "ottla")]
        for name, table in zip(("kafka", "ottla"), tables, strict=True):
            writer = lab.stream(topic, name, **isolation).writeStream.format("memory").queryName(table)
            writer.option("checkpointLocation", lab.checkpoint()).trigger(availableNow=True).start().awaitTermination()
        found = [sorted_rows(lab.spark.table(table)) for table in tables]
        assert len(found[0]) == count
        assert found[0] == found[1]
    still_open.abort_transaction()


@pytest.fixture
def kafka(spark: SparkSession, tmp_path: Path) -> Iterator[Lab]:
    """Apache Kafka in place of Ottla."""
    try:
        tools = Tools(kafka_jars(cache_directory()), "", None, "")
    except NotMeasured as reason:
        pytest.skip(str(reason))
    broker = Kafka(tools).start(tmp_path / "kafka")
    try:
        yield Lab(spark, broker.address, tmp_path)
    finally:
        broker.stop()


def test_the_source_and_the_sink_with_apache_kafka(kafka: Lab) -> None:
    topic, source, sink, checkpoint = kafka.topic(), kafka.topic(), kafka.topic(3), kafka.checkpoint()
    written = fill(kafka, topic)
    rows = kafka.read(topic, includeHeaders="true", minPartitions=5).collect()
    assert {(row.partition, row.offset) for row in rows} == set(written)
    if connector_jars():
        in_transactions(kafka, topic)
        assert_same(kafka, topic, includeHeaders="true", **{"kafka.isolation.level": "read_committed"})
    add(kafka, source, range(30))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(source, "not a number", partition=0)
    producer.flush()
    stream = kafka.stream(source, maxOffsetsPerTrigger=20).selectExpr("key", "concat('{\"n\":', value, '}') as value")
    good = from_json_topic(stream, schema="n bigint not null", bad_rows=f"{source}-dlq")
    for _ in range(2):
        kafka.run(good.selectExpr("cast(n as string) as value"), checkpoint, topic=sink)
    assert committed(kafka, sink) == sorted(map(str, range(30)))
    assert committed(kafka, f"{source}-dlq") == ['{"n":not a number}']
