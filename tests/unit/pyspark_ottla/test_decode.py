"""Fetched batches become the tables that the plain reader would make of them."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.wire.batch import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, build
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch
from ottla.wire.transaction_marker import build_marker
from pyspark_ottla import decode
from pyspark_ottla.decode import ROWS_PER_BATCH, CorruptBatchError, Decoder
from pyspark_ottla.schema import arrow_schema
from tests.unit.pyspark_ottla.tables import schema_of
from tests.unit.wire.damage import damage

PARTITION = TopicPartition("orders", 3)
EVERYTHING = arrow_schema(schema_of())
OPTIONAL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(0, 2**40), OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), min_size=1, max_size=20)
GAPS = st.lists(st.integers(0, 3), min_size=20, max_size=20)


def record(offset: int, value: bytes | None = b"v", timestamp: int = 5) -> Record:
    return Record(offset, timestamp, None, value, ())


def decoded(batches: bytes | bytearray, start: int = 0, end: int = 2**60, **settings: Any) -> list[dict[str, Any]]:
    decoder = Decoder(PARTITION, settings.pop("schema", EVERYTHING), check_crc=settings.pop("check_crc", False))
    tables = list(decoder.decode(memoryview(bytes(batches)), start, end, settings.pop("aborted", ())))
    for table in tables:
        table.validate(full=True)
    return [row for table in tables for row in table.to_pylist()]


def expected(records: list[Record]) -> list[dict[str, Any]]:
    return [
        {
            "key": each.key,
            "value": each.value,
            "topic": "orders",
            "partition": 3,
            "offset": each.offset,
            "timestamp": pa.scalar(each.timestamp * 1000, pa.timestamp("us", tz="UTC")).as_py(),
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in each.headers] or None,
        }
        for each in records
    ]


@given(st.lists(st.tuples(RECORDS, GAPS, st.sampled_from(list(Codec))), min_size=1, max_size=3), st.data())
def test_a_table_holds_what_was_written(drawn: list[Any], data: st.DataObject) -> None:
    batches, written, offset = bytearray(), [], 0
    for rows, gaps, codec in drawn:
        records = []
        for (timestamp, key, value, headers), gap in zip(rows, gaps, strict=False):
            offset += gap
            records.append(Record(offset, timestamp, key, value, tuple(headers)))
            offset += 1
        batches += build_batch(records, codec=codec)
        written += records
    start, end = sorted((data.draw(st.integers(0, offset)), data.draw(st.integers(0, offset))))
    assert decoded(batches, check_crc=True) == expected(written)
    assert decoded(batches, start, end) == expected([each for each in written if start <= each.offset < end])


@given(RECORDS, st.sampled_from([Codec.NONE, Codec.LZ4]), st.data())
def test_a_damaged_batch_is_an_error_or_harmless_never_a_crash(
    rows: list[Any], codec: Codec, data: st.DataObject
) -> None:
    records = [Record(offset, *row[:3], tuple(row[3])) for offset, row in enumerate(rows)]
    batch = build_batch(records, codec=codec)
    damage(batch, data)
    with contextlib.suppress(CorruptBatchError, UnicodeDecodeError, pa.ArrowInvalid, OverflowError, ValueError):
        decoded(batch)


def test_a_damaged_checksum_names_the_place() -> None:
    batches = build_batch([record(0)]) + build_batch([record(1)])
    batches[-1] ^= 1
    with pytest.raises(CorruptBatchError, match=r"the batch at offset 1 of orders-3 is corrupt: its checksum"):
        decoded(batches, check_crc=True)


def test_a_damaged_body_names_the_place() -> None:
    batch = build_batch([record(7), record(8)])
    batch[61] = 0x7E
    with pytest.raises(CorruptBatchError, match=r"the batch at offset 7 of orders-3 is corrupt"):
        decoded(batch)


def test_only_the_columns_that_are_wanted() -> None:
    rows = decoded(build_batch([record(4)]), schema=arrow_schema(schema_of("offset", "value")))
    assert rows == [{"offset": 4, "value": b"v"}]


def test_the_brokers_time_is_the_time_of_every_record() -> None:
    batch = build_batch([record(0, timestamp=5), record(1, timestamp=9)], attributes=LOG_APPEND_TIME_BIT)
    rows = decoded(batch)
    assert [row["timestampType"] for row in rows] == [1, 1]
    assert {row["timestamp"].microsecond for row in rows} == {9000}


def test_aborted_transactions_are_left_out_and_others_are_not() -> None:
    def written(offset: int, producer_id: int) -> bytearray:
        return build_batch(
            [record(offset)], producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_BIT
        )

    def marker(offset: int, producer_id: int, *, committed: bool) -> bytearray:
        batch = bytearray(
            build_marker(
                producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, committed=committed, timestamp=1
            )
        )
        batch[:8] = offset.to_bytes(8, "big")
        return batch

    batches = (
        written(0, 1) + written(1, 2) + build_batch([record(2)]) + marker(3, 1, committed=False)
        + marker(4, 2, committed=True) + written(5, 1) + marker(6, 1, committed=True)
    )  # fmt: skip
    assert [row["offset"] for row in decoded(batches, aborted=[(1, 0)])] == [1, 2, 5]
    assert [row["offset"] for row in decoded(batches)] == [0, 1, 2, 5]


def test_tables_have_the_size_that_spark_likes() -> None:
    batch = build_batch([record(offset, b"") for offset in range(ROWS_PER_BATCH + 1)])
    tables = list(Decoder(PARTITION, EVERYTHING).decode(memoryview(batch), 0, 2**60))
    assert [table.num_rows for table in tables] == [ROWS_PER_BATCH, 1]
    assert list(Decoder(PARTITION, EVERYTHING).decode(memoryview(b""), 0, 9)) == []


def test_a_fetch_that_decompresses_to_gigabytes_is_decoded_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a few kilobytes are all the memory of an executor, or more than the ends of Arrow's columns can count."""
    monkeypatch.setattr(decode, "RUN_BYTES", 1 << 20)
    fetched, written = bytearray(), []
    for offset in range(40):
        codec = Codec.ZSTD if offset % 3 else Codec.NONE
        fetched += build_batch([record(offset, bytes(300_000))], codec=codec)
        written.append((offset, 300_000))
    decoder = Decoder(PARTITION, EVERYTHING)
    tables = list(decoder.decode(memoryview(bytes(fetched)), 0, 2**60))
    rows = [row for table in tables for row in table.to_pylist()]
    assert [(row["offset"], len(row["value"])) for row in rows] == written
    assert [(row["topic"], row["partition"]) for row in rows] == [("orders", 3)] * 40
    assert len(decoder._scratch) <= decode.SCRATCH_BYTES
    assert max(table.nbytes for table in tables) < 5 << 20


def test_one_batch_may_not_decompress_to_a_gigabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "DECOMPRESSED_BYTES_MAX", 16 << 20)
    batch = build_batch([record(7, bytes(20 << 20))], codec=Codec.ZSTD)
    with pytest.raises(CorruptBatchError, match=r"offset 7 of orders-3 .*: it decompresses to more than 16777216"):
        decoded(batch)


def test_a_batch_without_the_records_that_it_claims_is_not_left_out() -> None:
    with pytest.raises(CorruptBatchError, match=r"the batch at offset 0 of orders-3 is corrupt"):
        decoded(build(b"", 0, 4, 5, 5, 5))


def test_a_batch_that_compaction_emptied_has_no_rows() -> None:
    assert decoded(build_batch([], base_offset=7, last_offset_delta=3)) == []
