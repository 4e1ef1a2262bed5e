"""Rows arrive where and as they should: columns, partitions, and exactly once however a driver dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.client.partitioner import partition_for_key
from tests.spark.conftest import STARTS_MAX, TOO_SLOW, Lab
from tests.spark.test_stream_read import add

DRIVER_SECONDS_MAX = 240
CRASHES = ("before the decision", "after the decision", "after the commit")


def test_columns_and_the_partition_of_a_key(lab: Lab) -> None:
    first, second = lab.topic(3), lab.topic(3)
    rows = [
        (f"key-{number}", f"v{number}", first if number % 2 else second, [("h", b"%d" % number)])
        for number in range(40)
    ]
    schema = "key string, value string, topic string, headers array<struct<key:string,value:binary>>"
    lab.spark.createDataFrame(rows, schema).write.format("ottla").mode("append").options(
        **lab.options({"kafka.compression.type": "zstd"})
    ).save()
    found = lab.read(f"{first},{second}", includeHeaders="true").collect()
    assert len(found) == 40
    for row in found:
        number = int(bytes(row.key).decode().removeprefix("key-"))
        assert (bytes(row.value).decode(), row.topic) == (f"v{number}", first if number % 2 else second)
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"%d" % number)]
        assert row.partition == partition_for_key(bytes(row.key), 3)


def test_keys_land_where_other_producers_put_them(lab: Lab) -> None:
    ours, theirs = lab.topic(7), lab.topic(7)
    keys = [f"{'x' * (number % 9)}{number}" for number in range(50)]
    lab.spark.createDataFrame([(key, "v") for key in keys], "key string, value string").write.format("ottla").mode(
        "append"
    ).options(**lab.options({"topic": ours})).save()
    producer = Producer({"bootstrap.servers": lab.bootstrap, "partitioner": "murmur2", "log_level": 0})
    for key in keys:
        producer.produce(theirs, b"v", key)
    producer.flush()
    places = [{bytes(row.key): row.partition for row in lab.read(topic).collect()} for topic in (ours, theirs)]
    assert places[0] == places[1]


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("select 1 as value", {"topic": "t"}, "value attribute unsupported type int"),
        ("select 'x' as key", {"topic": "t"}, "Required attribute 'value' not found"),
        ("select 'x' as value", {}, "topic option required when no 'topic' attribute is present"),
        ("select 'x' as value, cast(null as string) as topic", {}, "null topic present in the data"),
    ],
)
def test_refusals_reach_the_user(lab: Lab, query: str, options: dict[str, str], words: str) -> None:
    writer = lab.spark.sql(query).write.format("ottla").mode("append").options(**lab.options(options))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps it in one of its own
        writer.save()
    assert words in str(caught.value)


def test_a_stream_arrives_once(lab: Lab) -> None:
    source, sink, checkpoint = lab.topic(), lab.topic(3), lab.checkpoint()
    add(lab, source, range(30))
    for _ in range(2):
        lab.run(lab.stream(source, maxOffsetsPerTrigger=20).select("key", "value"), checkpoint, topic=sink)
    assert committed(lab, sink) == sorted(map(str, range(30)))
    add(lab, source, range(30, 40))
    lab.run(lab.stream(source).select("key", "value"), checkpoint, topic=sink, delivery="at_least_once")
    assert committed(lab, sink) == sorted(map(str, range(40)))


def committed(lab: Lab, topic: str) -> list[str]:
    """What a consumer of committed data gets, in another client's words."""
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap,
            "group.id": "x",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    places = [TopicPartition(topic, partition, 0) for partition in consumer.list_topics(topic).topics[topic].partitions]
    consumer.assign(places)
    values, ended = [], set()
    while len(ended) < len(places):
        message: Any = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            values.append(message.value().decode())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def test_a_driver_that_is_killed_between_the_steps_of_a_commit(lab: Lab) -> None:
    source, sink, checkpoint = lab.topic(), lab.topic(2), lab.checkpoint()
    add(lab, source, range(30))
    for crash in CRASHES:
        assert driver(lab, source, sink, checkpoint, crash) == -signal.SIGKILL, crash
        seen = lab.values(sink, **{"isolation.level": "read_committed"})
        assert len(seen) == len(set(seen))
        if crash == CRASHES[0]:
            assert seen == []
    assert driver(lab, source, sink, checkpoint, "never") == 0
    assert lab.values(sink, **{"isolation.level": "read_committed"}) == sorted(map(str, range(30)))


def driver(lab: Lab, source: str, sink: str, checkpoint: str, crash: str) -> int:
    """How a driver ends that dies as a whole at a step of its first commit."""
    for _ in range(STARTS_MAX):
        code, said = driver_once(lab, source, sink, checkpoint, crash)
        if code != 1 or TOO_SLOW not in said:
            break
    return code


def driver_once(lab: Lab, source: str, sink: str, checkpoint: str, crash: str) -> tuple[int, str]:
    """A driver in a session of its own: its exit code, and what it said."""
    program = Path(__file__).parent / "dying_driver.py"
    said = lab.directory / "said"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(program), lab.bootstrap, source, sink, checkpoint, crash],
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        return process.wait(DRIVER_SECONDS_MAX), said.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
