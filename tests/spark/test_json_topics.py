"""Topics of JSON: good rows are typed columns, bad ones are letters that say why, and each arrives once."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.model.errors import ConfigError
from ottla.spark import from_json_topic, infer_json_schema
from pyspark_ottla.dead_letters import FIELD, REASON, SOURCE
from tests.spark.conftest import Lab

SCHEMA = (
    "id bigint not null, amount double, at timestamp, tags array<int>, "
    "who struct<name:string not null, age:int>, items array<struct<sku:string not null, n:int>>, by map<string, int>"
)
GOOD = [
    {"id": 1, "amount": 2.5, "at": "2026-01-02T03:04:05Z", "tags": [1, 2], "who": {"name": "ann", "age": 3}},
    {"id": 2, "amount": 7, "unknown": "is no fault", "by": {"a": 1}},
    {"id": 3, "amount": None, "items": [{"sku": "x"}, {"sku": "y", "n": 2}]},
]
BAD: dict[bytes | None, tuple[str, str]] = {
    None: ("the value is null", ""),
    b"": ("the value is empty", ""),
    b'{"id": 1': ("the value is not JSON", ""),
    b"{'id': 1}": ("the value is not JSON", ""),
    b'{"id": 1} {"id": 2}': ("the value is not JSON: Extra data", ""),
    b'{"id": 1}]': ("the value is not JSON: Extra data", ""),
    b'[{"id": 1}]': ('the value is [{"id": 1}], not a JSON object', ""),
    b"5": ("the value is 5, not a JSON object", ""),
    b'{"id": 1, "who": {"name": "\xff"}}': ("the value is not UTF-8: byte 27 is 0xff", ""),
    b'{"id": "one"}': ("field 'id' is \"one\", not a bigint", "id"),
    b'{"id": 9223372036854775808}': ("field 'id' is 9223372036854775808, not a bigint", "id"),
    b'{"id": 1.5}': ("field 'id' is 1.5, not a bigint", "id"),
    b'{"amount": 1}': ("field 'id' is missing", "id"),
    b'{"id": null}': ("field 'id' is null", "id"),
    b'{"id": 1, "amount": "much"}': ("field 'amount' is \"much\", not a double", "amount"),
    b'{"id": 1, "at": "yesterday"}': ("field 'at' is \"yesterday\", not a timestamp", "at"),
    b'{"id": 1, "tags": [1, "x"]}': ("field 'tags[1]' is \"x\", not an int", "tags[1]"),
    b'{"id": 1, "who": {"age": 3}}': ("field 'who.name' is missing", "who.name"),
    b'{"id": 1, "who": "ann"}': ("field 'who' is \"ann\", not an object", "who"),
    b'{"id": 1, "items": [{"sku": "x"}, {"n": 1}]}': ("field 'items[1].sku' is missing", "items[1].sku"),
    b'{"id": 1, "by": {"a": "b"}}': ("field 'by[a]' is \"b\", not an int", "by[a]"),
}


BLANKS = b' \t{"id": 4}\r\n'


def produce(lab: Lab, topic: str, values: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": lab.bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        encoded = json.dumps(value).encode() if isinstance(value, dict) else value
        producer.produce(topic, encoded, b"k%d" % number, partition=number % 2, headers=[("trace", b"%d" % number)])
    producer.flush()


def letters(lab: Lab, topic: str) -> list[tuple[bytes | None, bytes | None, dict[str, str]]]:
    rows = lab.read(topic, includeHeaders="true", **{"isolation.level": "read_committed"}).collect()
    return [
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            {header.key: bytes(header.value).decode() for header in row.headers},
        )
        for row in rows
    ]


def test_a_batch_and_every_kind_of_bad_row(lab: Lab) -> None:
    topic = lab.topic()
    produce(lab, topic, [*GOOD, *BAD, BLANKS])
    df = lab.read(topic, includeHeaders="true")
    good = from_json_topic(df, schema=SCHEMA, bad_rows=f"{topic}-dlq", keep=("offset",))
    assert good.columns == ["id", "amount", "at", "tags", "who", "items", "by", "offset"]
    rows = {row.id: row for row in good.collect()}
    assert sorted(rows) == [1, 2, 3, 4]
    assert (rows[1].amount, rows[1].at.year, rows[1].tags, rows[1].who.name) == (2.5, 2026, [1, 2], "ann")
    assert (rows[2].amount, rows[2].by, rows[2].offset) == (7.0, {"a": 1}, 0)
    assert [item.sku for item in rows[3].items] == ["x", "y"]
    found = letters(lab, f"{topic}-dlq")
    assert Counter(value for _, value, _ in found) == Counter(list(BAD))
    for key, value, headers in found:
        number = 3 + list(BAD).index(value)
        reason, field = BAD[value]
        assert headers[REASON].startswith(reason), (value, headers)
        assert headers.get(FIELD, "") == field
        assert key == b"k%d" % number
        assert headers["trace"] == str(number)
        place = [headers[SOURCE + name] for name in ("topic", "partition", "offset")]
        assert place == [topic, str(number % 2), str(number // 2)]
        assert int(headers[SOURCE + "timestamp"]) > 0


def test_a_stream_goes_on_and_its_letters_arrive_once_though_the_batch_is_run_again(lab: Lab) -> None:
    topic, sink, checkpoint = lab.topic(), lab.topic(), lab.checkpoint()
    dlq = f"{topic}-dlq"
    produce(lab, topic, [*GOOD, b"no", {"id": "x"}, {"amount": 1}])
    schema = infer_json_schema(lab.read(topic).where("offset = 0"))
    assert schema.simpleString().startswith("struct<amount:double,at:string,")
    good = from_json_topic(lab.stream(topic), schema="id bigint not null, amount double", bad_rows=dlq)
    refused = good.selectExpr("cast(assert_true(id < 2) as string) as value")
    assert "assert_true" in lab.refusal(refused, checkpoint, "ottla", topic=sink)
    for _ in range(2):
        lab.run(good.selectExpr("cast(id as string) as value"), checkpoint, topic=sink)
    assert lab.values(sink, **{"isolation.level": "read_committed"}) == ["1", "2", "3"]
    reasons = sorted((headers[REASON].split(":")[0], headers[SOURCE + "offset"]) for _, _, headers in letters(lab, dlq))
    assert reasons == [
        ("field 'id' is \"x\", not a bigint", "2"),
        ("field 'id' is missing", "2"),
        ("the value is not JSON", "1"),
    ]
    produce(lab, topic, [{"id": 4}, b"no again"])
    lab.run(good.selectExpr("cast(id as string) as value"), checkpoint, topic=sink)
    assert lab.values(sink, **{"isolation.level": "read_committed"}) == ["1", "2", "3", "4"]
    assert len(letters(lab, dlq)) == 4


def test_a_schema_that_is_inferred_and_what_is_refused(lab: Lab) -> None:
    topic = lab.topic()
    produce(lab, topic, [{"id": 1, "name": "ann"}, b"no", {"id": 2.5}])
    stream = lab.stream(topic)
    assert infer_json_schema(stream).simpleString() == "struct<id:double,name:string>"
    typed = from_json_topic(stream, schema="infer", bad_rows="some-dlq")
    assert typed.isStreaming
    assert typed.dtypes == [("id", "double"), ("name", "string")]
    df = lab.read(topic)
    with pytest.raises(Exception, match=rf"the row at offset 0 of {topic}-1 is bad: the value is not JSON"):
        from_json_topic(df, schema="id double").collect()
    for words, call in {
        "give options=": lambda: from_json_topic(lab.spark.sql("select '{}' as value"), "id int", bad_rows="t"),
        "needs a column 'value'": lambda: from_json_topic(df.select("key"), "id int"),
        "a field of the schema and a column": lambda: from_json_topic(df, "offset int", keep=["offset"]),
        "keep names nothing": lambda: from_json_topic(df, "id int", keep=["nothing"]),
        "for streams": lambda: from_json_topic(df, "id int", "t", options={"delivery": "exactly_once"}),
        "cannot set mode": lambda: from_json_topic(df, "id int", json_options={"mode": "FAILFAST"}),
        "an object with at least one field": lambda: from_json_topic(df, "int"),
    }.items():
        with pytest.raises(ConfigError, match=words):
            call()
