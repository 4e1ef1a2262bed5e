"""Whatever is wrong with a value, its producer is told what and where."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_ottla.json_faults import SHOWN_CHARS_MAX, find_fault

PERSON = StructType().add("name", StringType(), nullable=False).add("age", ByteType())
SCHEMA = (
    StructType()
    .add("id", LongType(), nullable=False)
    .add("is_new", BooleanType())
    .add("score", DoubleType())
    .add("day", DateType())
    .add("at", TimestampType())
    .add("price", DecimalType(10, 2))
    .add("who", PERSON)
    .add("friends", ArrayType(PERSON, containsNull=False))
    .add("counts", MapType(StringType(), IntegerType(), valueContainsNull=False))
    .add("raw", BinaryType())
)


@pytest.mark.parametrize(
    ("value", "reason", "field"),
    [
        (None, "the value is null", ""),
        (b"", "the value is empty", ""),
        (b" \n", "the value is empty", ""),
        (b"\xc3(", "the value is not UTF-8: byte 0 is 0xc3", ""),
        (b"{", "the value is not JSON: Expecting property name", ""),
        (b'{"id": 1}{}', "the value is not JSON: Extra data", ""),
        (b"[" * 100_000, "the value is nested too deeply", ""),
        (b"null", "the value is null, not a JSON object", ""),
        (b"{}", "field 'id' is missing", "id"),
        (b'{"id": null}', "field 'id' is null", "id"),
        (b'{"id": true}', "field 'id' is true, not a bigint", "id"),
        (b'{"id": 1, "is_new": 1}', "field 'is_new' is 1, not a boolean", "is_new"),
        (b'{"id": 1, "score": "high"}', "field 'score' is \"high\", not a double", "score"),
        (b'{"id": 1, "score": "NaN", "day": "soon"}', "field 'day' is \"soon\", not a date", "day"),
        (b'{"id": 1, "at": "12 o\'clock"}', "field 'at' is \"12 o'clock\", not a timestamp", "at"),
        (b'{"id": 1, "at": []}', "field 'at' is [], not a timestamp", "at"),
        (b'{"id": 1, "price": "cheap"}', "field 'price' is \"cheap\", not a decimal(10,2)", "price"),
        (b'{"id": 1, "who": []}', "field 'who' is [], not an object", "who"),
        (b'{"id": 1, "who": {"age": 3}}', "field 'who.name' is missing", "who.name"),
        (b'{"id": 1, "who": {"name": 5, "age": 128}}', "field 'who.age' is 128, not a tinyint", "who.age"),
        (b'{"id": 1, "friends": {}}', "field 'friends' is {}, not an array<", "friends"),
        (b'{"id": 1, "friends": [{"name": "a"}, null]}', "field 'friends[1]' is null", "friends[1]"),
        (b'{"id": 1, "counts": {"a": 1, "b": "x"}}', "field 'counts[b]' is \"x\", not an int", "counts[b]"),
        (b'{"id": 1, "counts": [1]}', "field 'counts' is [1], not a map<string,int>", "counts"),
        # What is certain goes before what only Spark can judge.
        (b'{"id": 1, "day": "soon", "who": 5}', "field 'who' is 5, not an object", "who"),
        (b'{"id": 1, "day": "2026-01-02"}', "Spark cannot read the value with this schema", ""),
    ],
)
def test_faults(value: bytes | None, reason: str, field: str) -> None:
    fault = find_fault(value, SCHEMA)
    assert fault.reason.startswith(reason)
    assert fault.field == field


def test_a_long_value_is_shown_in_part() -> None:
    fault = find_fault(b'{"id": "%s"}' % (b"x" * 1000), SCHEMA)
    assert "..." in fault.reason
    assert len(fault.reason) < SHOWN_CHARS_MAX + 40
