"""What is in a topic is what Spark reads, to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.conftest import Lab

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Written = dict[tuple[int, int], tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def fill(lab: Lab, topic: str) -> Written:
    """Records with every codec, with and without key, value and headers; returns them by partition and offset."""
    written: Written = {}

    def delivered(error: Any, message: Any, record: Any) -> None:
        assert error is None
        written[message.partition(), message.offset()] = record

    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": lab.bootstrap, "compression.type": codec, "linger.ms": 50, "log_level": 0}
        )
        for number in range(40):
            key = None if number % 3 == 0 else b"" if number % 7 == 0 else b"key-%d" % number
            value = None if number % 5 == 0 else b"" if number % 11 == 0 else (b"%s-%d " % (codec.encode(), number)) * 9
            headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("nothing", None), ("h", b"")][: number % 4]
            record = (key, value, headers)
            producer.produce(
                topic,
                value,
                key,
                partition=number % 2,
                headers=headers,
                on_delivery=lambda error, message, record=record: delivered(error, message, record),
            )
        producer.flush()
    return written


def in_transactions(lab: Lab, topic: str) -> None:
    """Values c0, c1 committed, a0, a1 aborted, and one of another producer in between."""
    plain = Producer({"bootstrap.servers": lab.bootstrap, "log_level": 0})
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions()
    for prefix, end in (("a", producer.abort_transaction), ("c", producer.commit_transaction)):
        producer.begin_transaction()
        for number in range(2):
            producer.produce(topic, f"{prefix}{number}", partition=0)
        producer.flush()
        plain.produce(topic, f"plain-{prefix}", partition=0)
        plain.flush()
        end()


def test_rows_are_what_was_written(lab: Lab) -> None:
    topic = lab.topic()
    written = fill(lab, topic)
    rows = lab.read(topic, includeHeaders="true", minPartitions=5).collect()
    assert len(rows) == len(written) == 200
    for row in rows:
        headers = [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()]
        found = (bytes(row.key) if row.key is not None else None, bytes(row.value) if row.value is not None else None)
        assert (*found, headers) == written[row.partition, row.offset]
        assert (row.topic, row.timestampType) == (topic, 0)


def test_only_the_columns_of_a_schema_and_filters_that_are_pushed_down(lab: Lab) -> None:
    topic = lab.topic()
    fill(lab, topic)
    given = lab.options({"subscribe": topic, "pushdown": "true"})
    reader = lab.spark.read.format("ottla").options(**given).schema("offset bigint, partition int")
    narrow = reader.load().where("partition = 1 and offset >= 40 and offset < 43")
    assert narrow.rdd.getNumPartitions() == 1
    assert sorted(tuple(row) for row in narrow.collect()) == [(40, 1), (41, 1), (42, 1)]
    late = lab.read(topic, pushdown="true").where("timestamp > timestamp'2100-01-01'")
    assert late.collect() == []
    early = lab.read(topic, pushdown="true").where(
        "timestamp > timestamp'2020-01-01' and timestamp < current_date() + 2"
    )
    assert early.count() == 200


def test_transactions(lab: Lab) -> None:
    topic = lab.topic(1)
    in_transactions(lab, topic)
    assert lab.values(topic) == ["a0", "a1", "c0", "c1", "plain-a", "plain-c"]
    committed = ["c0", "c1", "plain-a", "plain-c"]
    assert lab.values(topic, **{"isolation.level": "read_committed"}) == committed
    assert lab.values(topic, **{"kafka.isolation.level": "read_committed"}) == committed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": ""}, "No topics to subscribe to"),
        ({"assign": "{}"}, "Only one of the following options can be specified"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}, "127.0.0.1:1"),
        ({"subscribe": "not-there"}, "there is no such topic"),
    ],
)
def test_refusals_reach_the_user(lab: Lab, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps it in one of its own
        lab.read(lab.topic(), **options).count()
    assert words in str(caught.value)


def test_a_schema_with_a_foreign_column(lab: Lab) -> None:
    reader = lab.spark.read.format("ottla").options(**lab.options({"subscribe": "t"}))
    with pytest.raises(Exception) as caught:  # noqa: PT011
        reader.schema("user string").load().count()
    assert "there is no column 'user'" in str(caught.value)
