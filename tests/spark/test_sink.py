"""Rows arrive where and as they should: columns, partitions, and exactly once however a driver dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.client.cluster import Cluster
from ottla.client.deadline import Deadline
from ottla.client.partitioner import partition_for_key
from ottla.client.settings import ClientSettings
from ottla.client.transactions import ONGOING, TransactionAdmin
from tests.spark.conftest import Lab, kill_session
from tests.spark.dying_driver import STEPS
from tests.spark.test_stream_read import add

DRIVER_SECONDS_MAX = 400


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


def test_a_driver_that_is_killed_at_any_step_of_a_commit(lab: Lab) -> None:
    """One driver runs a query for every step, and dies when each is at its own. All go on in another one.

    Every request and answer of a batch is such a step in tests/unit/pyspark_ottla/test_stream_writer.py; these are the
    ones that differ in what the next run has to do, with Spark around them.
    """
    source = lab.topic()
    sinks = [lab.topic(2, name=f"{source}-{number}") for number in range(len(STEPS))]
    add(lab, source, range(30))
    kill_a_driver(lab, source)
    seen = [lab.values(sink, **{"isolation.level": "read_committed"}) for sink in sinks]
    everything = sorted(map(str, range(30)))
    assert open_transactions(lab, sinks) == [2, 2, 1, 0]
    assert seen[:2] == [[], []]
    # Not even the half that is committed need be seen: what the open transaction wrote may lie before it.
    assert len(seen[2]) == len(set(seen[2])) < 30
    assert seen[3] == everything
    rows = lab.stream(source).select("key", "value")
    for sink in sinks:
        lab.run(rows, str(lab.directory / sink), topic=sink)
    assert {sink: committed(lab, sink) for sink in sinks} == dict.fromkeys(sinks, everything)


def open_transactions(lab: Lab, sinks: list[str]) -> list[int]:
    """How many write to each."""
    with Cluster(ClientSettings.of(lab.bootstrap)) as cluster:
        admin = TransactionAdmin(cluster)
        found = [admin.describe(listed.transactional_id) for listed in admin.list_transactions([ONGOING])]
    return [sum(any(place.topic == sink for place in one.partitions) for one in found) for sink in sinks]


def kill_a_driver(lab: Lab, source: str) -> None:
    """Run the driver until all of its queries stand still, and end its whole session with -9."""
    program = Path(__file__).parent / "dying_driver.py"
    said = lab.directory / "said"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(program), lab.bootstrap, source, str(lab.directory)],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(lab.directory)},  # what is killed leaves its temporary files
        )
    try:
        deadline = Deadline(1000 * DRIVER_SECONDS_MAX)
        while not (lab.directory / "all-stopped").exists():
            assert process.poll() is None, said.read_text()[-3000:]
            assert not deadline.passed(), said.read_text()[-3000:]
            time.sleep(0.1)
    finally:
        kill_session(process.pid)
        process.wait()
