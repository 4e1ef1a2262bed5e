"""Whatever is wrong, the user hears it in words that say what to do, and nothing is lost in silence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from ottla.client.admin import Admin
from ottla.client.deadline import Deadline
from ottla.client.offsets import EARLIEST
from ottla.model.configs.definition import ResourceType
from ottla.model.ids import TopicPartition
from tests.spark.conftest import Lab
from tests.spark.test_stream_read import add

NOWHERE = "127.0.0.1:1"
WAIT_MS_MAX = 60_000
FAIL_SECONDS_MAX = 30
"""Half of what an unreachable broker would take without the option; the rest is for a busy machine."""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = Deadline(WAIT_MS_MAX)
    while not condition():
        assert not deadline.passed()
        time.sleep(0.05)


def test_a_topic_that_was_deleted_and_made_anew_under_the_query(lab: Lab) -> None:
    topic, checkpoint = lab.topic(1), lab.checkpoint()
    add(lab, topic, range(5), partitions=1)
    lab.run(lab.stream(topic), checkpoint, "noop")
    with Admin.connect(lab.bootstrap) as admin:
        admin.delete_topic(topic)
    assert "there is no such topic" in lab.refusal(lab.stream(topic), checkpoint)
    lab.topic(1, name=topic)
    add(lab, topic, range(3), partitions=1)
    said = lab.refusal(lab.stream(topic), checkpoint)
    assert f"{topic}-0 ends at offset 3, before 5, where the query is" in said
    assert 'set the source option "failOnDataLoss" to "false"' in said
    assert lab.run(lab.stream(topic, failOnDataLoss="false"), checkpoint, "noop") == []
    add(lab, topic, range(4), partitions=1)
    rest = lab.run(lab.stream(topic, failOnDataLoss="false"), checkpoint, "noop")
    assert sum(batch["numInputRows"] for batch in rest) == 4


def test_records_that_aged_out_under_the_query(lab: Lab) -> None:
    topic, checkpoint = lab.topic(1, segment_ms="100", file_delete_delay_ms="0"), lab.checkpoint()
    add(lab, topic, range(2), partitions=1)
    lab.run(lab.stream(topic), checkpoint, "noop")
    add(lab, topic, range(5), partitions=1)
    place = TopicPartition(topic, 0)
    with Admin.connect(lab.bootstrap) as admin:
        admin.alter_configs(ResourceType.TOPIC, topic, set_to={"retention.ms": "100"})
        wait_until(lambda: admin.list_offsets({place: EARLIEST})[place].offset == 7)
        admin.alter_configs(ResourceType.TOPIC, topic, set_to={"retention.ms": "-1"})
    add(lab, topic, range(3), partitions=1)
    assert f"offsets 2 to 10 of {topic}-0 are not all there any more" in lab.refusal(lab.stream(topic), checkpoint)
    rest = lab.run(lab.stream(topic, failOnDataLoss="false"), checkpoint, "noop")
    assert sum(batch["numInputRows"] for batch in rest) == 3


def test_a_checkpoint_of_another_query(lab: Lab) -> None:
    first, second, checkpoint = lab.topic(1), lab.topic(1), lab.checkpoint()
    for topic in (first, second):
        add(lab, topic, range(3), partitions=1)
    lab.run(lab.stream(first), checkpoint, "noop")
    said = lab.refusal(lab.stream(second), checkpoint)
    assert f"the checkpoint has {first}-0, and this query reads {second}" in said
    assert "a checkpoint of its own" in said
    other = lab.checkpoint()
    numbers = lab.spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    query = numbers.writeStream.format("noop").option("checkpointLocation", other).start()
    while not query.recentProgress:
        query.awaitTermination(0.1)
    query.stop()
    assert "which is none of topics: it is the checkpoint of another query" in lab.refusal(lab.stream(first), other)


def test_a_broker_that_cannot_be_reached_is_named_in_time(lab: Lab) -> None:
    topic = lab.topic(1)
    add(lab, topic, range(1), partitions=1)
    away = {"kafka.bootstrap.servers": NOWHERE, "kafka.default.api.timeout.ms": "500"}
    assert NOWHERE in lab.refusal(lab.stream(topic, **away))
    assert NOWHERE in lab.refusal(lab.stream(topic).select("value"), format="ottla", topic=topic, **away)
    rows = lab.spark.sql("select 'x' as value").write.format("ottla").mode("append")
    for act in (lambda: lab.read(topic, **away).count(), rows.options(**lab.options({"topic": topic, **away})).save):
        assert NOWHERE in refused(act)
        began = time.monotonic()
        refused(act)  # now that Spark's processes run, it takes the time that it was given
        assert time.monotonic() - began < FAIL_SECONDS_MAX


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps it in one of its own
        act()
    return str(caught.value)


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("select 'x' as value, 1 as user", {}, "the sink has no column 'user'"),
        ("select 'x' as value, 9 as partition", {}, "row 0 of its task names partition 9, but topic"),
        (
            "select repeat('x', if(id = 2, 2000000, 1)) as value from range(0, 3, 1, 1)",
            {},
            "row 2 of its task has 2000000 bytes, more than kafka.max.request.size (1048576)",
        ),
        (
            "select repeat('x', 2000000) as value",
            {"kafka.max.request.size": "4000000"},
            "max.message.bytes is 1048588 (MESSAGE_TOO_LARGE)",
        ),
        ("select 'x' as value", {"topic": "not-there"}, "topic 'not-there': there is no such topic"),
        ("select 'x' as value", {"kafka.compression.type": "rar"}, "kafka.compression.type is one of none, gzip"),
    ],
)
def test_rows_that_cannot_be_written(lab: Lab, query: str, options: dict[str, str], words: str) -> None:
    given = lab.options({"topic": lab.topic(1), "kafka.default.api.timeout.ms": "5000", **options})
    writer = lab.spark.sql(query).write.format("ottla").mode("append").options(**given)
    assert words in refused(writer.save)


def test_batches_that_are_damaged_on_disk_are_named_and_never_left_out(lab: Lab) -> None:
    for codec, options in (("none", {"checkCrcs": "true"}), ("gzip", {})):
        topic = lab.topic(1)
        producer = Producer({"bootstrap.servers": lab.bootstrap, "compression.type": codec, "log_level": 0})
        for number in range(3):
            producer.produce(topic, f"{number}" * 100, partition=0)
            producer.flush()
        segment = next((lab.data / f"{topic}-0").glob("*.log"))
        content = bytearray(segment.read_bytes())
        second = int.from_bytes(content[8:12], "big") + 12
        content[second + 61 + 20] ^= 0xFF
        with segment.open("r+b") as file:
            file.write(content)
        said = refused(lab.read(topic, **options).collect)
        assert f"the batch at offset 1 of {topic}-0 is corrupt" in said
        assert "Skip it by starting after it" in said
        after = json.dumps({topic: {"0": 2}})
        assert len(lab.values(topic, startingOffsets=after, **options)) == 1
