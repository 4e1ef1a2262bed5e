"""Tables become batches that any reader reads, and every row goes where a Java producer would put it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.partitioner import partition_for_key
from ottla.wire.batch import crc_matches, read_header
from ottla.wire.compression import Codec
from ottla.wire.records import Record, iterate
from pyspark_ottla.encode import BatchEncoder, EncodedBatch, RowError
from pyspark_ottla.schema import arrow_schema
from tests.unit.pyspark_ottla.tables import schema_of

OPTIONAL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=9)}), max_size=3
)
ROWS = st.lists(st.tuples(OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), max_size=30)
HEADERS_TYPE = arrow_schema(schema_of("headers")).field("headers").type


def encoder(partitions: int = 4, **settings: Any) -> BatchEncoder:
    return BatchEncoder(lambda _: partitions, **{"topic": "t", **settings})


def encoded(writer: BatchEncoder, *tables: pa.RecordBatch) -> list[EncodedBatch]:
    return [batch for table in tables for batch in writer.add(table)] + list(writer.finish())


def records_of(batches: list[EncodedBatch]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {}
    for batch in batches:
        raw = memoryview(batch.records)
        assert crc_matches(raw, read_header(raw))
        records = list(iterate(raw))
        assert len(records) == batch.record_count
        found.setdefault(batch.partition, []).extend(records)
    return found


def table(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(ROWS, min_size=1, max_size=3), st.sampled_from(list(Codec)), st.sampled_from([120, 4096]))
def test_nothing_is_lost_or_changed(tables: list[list[Any]], codec: Codec, batch_bytes: int) -> None:
    given_tables = [
        table(
            key=pa.array([row[0] for row in rows], pa.binary()),
            value=pa.array([row[1] for row in rows], pa.binary()),
            headers=pa.array([row[2] for row in rows], HEADERS_TYPE),
            partition=pa.array([0] * len(rows), pa.int32()),
        )
        for rows in tables
    ]
    found = records_of(encoded(encoder(codec=codec, batch_bytes=batch_bytes), *given_tables))
    wanted = [
        (key, value, tuple((header["key"], header["value"]) for header in headers or ()))
        for rows in tables
        for key, value, headers in rows
    ]
    assert [(each.key, each.value, tuple(each.headers)) for each in found.get(("t", 0), [])] == wanted


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=40), st.integers(1, 9))
def test_a_key_chooses_its_partition_as_in_java(keys: list[bytes], partitions: int) -> None:
    found = records_of(encoded(encoder(partitions), table(key=pa.array(keys, pa.binary()), value=["v"] * len(keys))))
    for (_, partition), records in found.items():
        assert all(partition_for_key(each.key or b"", partitions) == partition for each in records)


def test_rows_without_a_key_take_turns() -> None:
    writer = encoder(3)
    found = records_of(encoded(writer, *[table(value=["a", "b"]) for _ in range(3)]))
    assert sorted(len(records) for records in found.values()) == [2, 2, 2]


def test_a_slice_of_a_table_is_that_slice() -> None:
    whole = table(key=["a", "b", "c"], value=["1", None, "3"], partition=pa.array([0, 1, None], pa.int32()))
    found = records_of(encoded(encoder(), whole.slice(1, 1)))
    assert [(each.key, each.value) for each in found["t", 1]] == [(b"b", None)]


def test_topics_by_column_and_by_option() -> None:
    rows = table(topic=["a", "b", "a"], value=["1", "2", "3"])
    found = records_of(encoded(encoder(1, topic=None), rows))
    assert {topic: [each.value for each in records] for (topic, _), records in found.items()} == {
        "a": [b"1", b"3"],
        "b": [b"2"],
    }
    assert {topic for topic, _ in records_of(encoded(encoder(1), rows))} == {"t"}


def test_a_row_without_a_topic() -> None:
    with pytest.raises(RowError, match=r"null topic present in the data \(row 1 of its task\)"):
        encoded(encoder(topic=None), table(topic=["a", None], value=["1", "2"]))
    with pytest.raises(RowError, match="topic option required"):
        encoded(encoder(topic=None), table(value=["1"]))


def test_a_partition_that_is_not_there() -> None:
    first = table(value=["x"])
    with pytest.raises(RowError, match="row 2 of its task names partition 4, but topic t has 4 partitions"):
        encoded(encoder(), first, table(value=["1", "2"], partition=pa.array([0, 4], pa.int32())))


def test_a_row_larger_than_a_batch_and_one_that_is_too_large() -> None:
    large = table(value=["x" * 5000, "y"], partition=pa.array([0, 0], pa.int32()))
    found = records_of(encoded(encoder(batch_bytes=1000), large))
    assert [len(each.value or b"") for each in found["t", 0]] == [5000, 1]
    with pytest.raises(RowError, match=r"row 0 of its task has 5000 bytes, more than kafka.max.request.size \(4000\)"):
        encoded(encoder(batch_bytes=1000, row_bytes_max=4000), large)


def test_a_header_without_a_key() -> None:
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS_TYPE)
    with pytest.raises(RowError, match="a header without a key"):
        encoded(encoder(), table(value=["1"], headers=headers))
