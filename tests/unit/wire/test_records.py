"""Records of every client come out as they were sent, and a batch that lies about them is refused."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire import batch as record_batch
from ottla.wire.compression import Codec, compress
from ottla.wire.crc import crc32c
from ottla.wire.records import Record, build_batch, find_timestamp, iterate, max_timestamp_record
from ottla.wire.varint import signed

LIBRDKAFKA = {
    "gzip": (
        "00000000000000000000007400000000021521fa8a000100000002000001a1e1601b47000001a1e1601b47ffffffffffffffffffffffff"
        "ffff000000031f8b08000000000000035bc4c8c0c0c0969d5ad9c69893995494929d98969da84026d380892983a96211d048266a196908"
        "3792855a461a818d040037bd01f1f9000000"
    ),
    "snappy": (
        "0000000000000001000000640000000002fb6cfd16000200000001000001a1e1603117000001a1e1603117ffffffffffffffffffffffff"
        "ffff00000002a60154a201000000066b657986016c696272646b61666b6120da0b001431020268027801530002fe530011531432020268"
        "0278"
    ),
    "lz4": (
        "0000000000000000000000790000000002057a9c35000300000002000001a1e1604dfe000001a1e1604dfeffffffffffffffffffffffff"
        "ffff0000000304224d1860408239000000ff07a201000000066b657986016c696272646b61666b61200b00246030020268027853001f02"
        "530035153153001f045300356032020268027800000000"
    ),
    "zstd": (
        "000000000000000000000072000000000289c6dbd7000400000002000001a1e1607035000001a1e1607035ffffffffffffffffffffffff"
        "ffff0000000328b52ffd0058c501009402a201000000066b657986016c696272646b61666b6120300202680278a2010000023104320202"
        "680278040005908076cb0aa8479fa509"
    ),
}
JAVA = {
    "gzip": (
        "00000000000000000000006b00000000022bdd3946000100000002000001a1e1602fdc000001a1e1603026000000000000000a00000000"
        "0000000000031f8b08000000000000ffeb6164606060cb4eadacf24a2c4b5420933060e8636498c4c844b141862083a630b2506c901103"
        "00a9fa532fda000000"
    ),
    "snappy": (
        "0000000000000001000000690000000002ebfb6cbd000200000001000001a1e1604c51000001a1e1604c76000000000000000b00000000"
        "00010000000282534e41505059000000000100000001000000249001388c01000000066b65797a4a61766120da05001c31008c01004a02"
        "06fe4800043200"
    ),
    "lz4": (
        "00000000000000000000006f0000000002f9f5bc2c000300000002000001a1e1606ca0000001a1e1606e34000000000000000c00000000"
        "00000000000304224d186040822f000000ff008c01000000066b65797a4a617661200500248f30008e0100a8060249002e123149001f04"
        "49002b50766120320000000000"
    ),
    "zstd": (
        "0000000000000000000000660000000002c97a115f000400000002000001a1e1608816000001a1e1608872000000000000000d00000000"
        "00000000000328b52ffd00584c0100d88c01000000066b65797a4a6176612030008e0100b80102310432000400065260b86682c41167a9"
        "03010000"
    ),
}
"""Batches as Apache Kafka 4.3 stored them, from the console producer and from librdkafka 2.16."""

blobs = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70) | st.just(b"x" * 9000)
times = st.integers(-1, 1 << 50)
headers = st.lists(st.tuples(st.text(max_size=10), blobs), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Records with rising offsets, as a producer (without gaps) or a compacted log (with some) has them."""
    offset = draw(st.sampled_from([0, 5, 1 << 40]))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        records.append(Record(offset, draw(times), draw(blobs), draw(blobs), draw(headers)))
        offset += draw(st.sampled_from([1, 1, 1, 70, 10_000]))
    return records


def plain(records: list[Record]) -> list[Record]:
    return [record._replace(headers=list(record.headers)) for record in records]


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=25)
@given(records=record_lists())
def test_records_come_out_as_they_went_in(codec: Codec, records: list[Record]) -> None:
    batch = build_batch(records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=9, leader_epoch=3)
    assert plain(iterate(batch)) == records
    header = record_batch.read_header(batch)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=25)
@given(records=record_lists())
def test_another_client_reads_our_batches(codec: Codec, records: list[Record]) -> None:
    theirs = DefaultRecordBatch(bytes(build_batch(records, codec=codec)))
    assert theirs.validate_crc()
    read = [Record(r.offset, r.timestamp if r.timestamp is not None else -1, r.key, r.value, r.headers) for r in theirs]
    assert read == records


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=25)
@given(records=record_lists())
def test_we_read_another_clients_batches(codec: Codec, records: list[Record]) -> None:
    sent = [record._replace(offset=i, timestamp=max(record.timestamp, 0)) for i, record in enumerate(records)]
    builder: Any = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 10_000_000)
    for record in sent:
        builder.append(*record)
    assert plain(iterate(builder.build())) == sent


@pytest.mark.parametrize("codec", LIBRDKAFKA)
def test_batches_of_librdkafka_are_read(codec: str) -> None:
    records = iterate(bytes.fromhex(LIBRDKAFKA[codec]))
    assert {(record.key, *record.headers) for record in records} == {(b"key", ("h", b"x"))}
    assert [record.value for record in records] == [b"librdkafka " * 6 + b"%d" % record.offset for record in records]
    assert records[-1].offset == 2


@pytest.mark.parametrize("codec", JAVA)
def test_batches_of_the_java_client_are_read(codec: str) -> None:
    records = iterate(bytes.fromhex(JAVA[codec]))
    assert [record.value for record in records] == [b"Java " * 12 + b"%d" % record.offset for record in records]
    assert {record.key for record in records} == {b"key"}
    assert records[-1].offset == 2


def test_header_names_that_are_not_text_survive() -> None:
    record = Record(0, 0, None, None, [(b"\xff\xfe".decode("utf-8", "surrogateescape"), b"x")])
    assert plain(iterate(build_batch([record]))) == [record]


def test_a_batch_that_compaction_emptied_keeps_its_offsets() -> None:
    batch = build_batch([], base_offset=7, last_offset_delta=3)
    assert iterate(batch) == []
    assert record_batch.read_header(batch).last_offset == 10
    assert max_timestamp_record(batch) is None


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=25)
@given(records=record_lists(), timestamp=times)
def test_a_time_is_found_where_a_scan_would_find_it(codec: Codec, records: list[Record], timestamp: int) -> None:
    batch = build_batch(records, codec=codec)
    expected = next(((r.offset, r.timestamp) for r in records if r.timestamp >= timestamp), None)
    assert find_timestamp(batch, timestamp) == expected
    youngest = max(record.timestamp for record in records)
    first = next(record.offset for record in records if record.timestamp == youngest)
    assert max_timestamp_record(batch) == (first, youngest)


def test_in_a_batch_with_the_brokers_time_all_records_have_it() -> None:
    batch = memoryview(build_batch([Record(i, i, None, b"v") for i in range(3)]))
    record_batch.set_log_append_time(batch, 5000)
    assert [record.timestamp for record in iterate(batch)] == [5000, 5000, 5000]
    assert find_timestamp(batch, 4000) == (0, 5000)
    assert find_timestamp(batch, 5001) is None
    assert max_timestamp_record(batch) == (0, 5000)


def framed(body: bytes, count: int, codec: int = 0) -> bytes:
    """A batch with a fitting length and checksum around whatever body."""
    checked = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(checked) + 9, 0, 2, crc32c(checked)) + checked


def record_of(content: bytes) -> bytes:
    return signed(len(content)) + content


GOOD = record_of(b"\x00\x00\x00\x02k\x02v\x00")
LIES = {
    "a record too few": framed(GOOD, 2),
    "a record too many": framed(GOOD + GOOD, 1),
    "a billion records": framed(GOOD, 1 << 30),
    "fewer than no records": framed(GOOD, -5),
    "a record longer than the batch": framed(signed(90) + GOOD[1:], 1),
    "a record of negative length": framed(signed(-5) + GOOD[1:], 1),
    "a record shorter than its fields": framed(signed(3) + GOOD[1:], 1),
    "a record longer than its fields": framed(record_of(GOOD[1:] + b"\x00"), 1),
    "a key longer than its record": framed(record_of(b"\x00\x00\x00" + signed(50) + b"k\x02v\x00") + bytes(60), 1),
    "a key of length -2": framed(record_of(b"\x00\x00\x00\x03\x02v\x00"), 1),
    "a header without a name": framed(record_of(b"\x00\x00\x00\x01\x01\x02\x01\x01"), 1),
    "a billion headers": framed(record_of(b"\x00\x00\x00\x01\x01" + signed(1 << 29)), 1),
    "a negative number of headers": framed(record_of(b"\x00\x00\x00\x01\x01\x01"), 1),
    "an endless varint": framed(record_of(b"\x00" + b"\xff" * 20), 1),
    "a body that is no gzip": framed(GOOD, 1, codec=1),
}


@pytest.mark.parametrize("batch", LIES.values(), ids=LIES.keys())
def test_a_batch_that_lies_about_its_records_is_refused(batch: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        iterate(batch)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_what_is_no_batch_is_refused() -> None:
    good = bytes(build_batch([Record(0, 0, None, b"v")]))
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    for nonsense in (b"", good[:60], good[:-1], good + b"x", good[:16] + b"\x01" + good[17:], flipped):
        with pytest.raises(ApiError):
            iterate(nonsense)


def test_a_batch_may_not_decompress_to_more_than_allowed() -> None:
    batch = framed(compress(Codec.ZSTD, bytes(1 << 24)), 1, codec=Codec.ZSTD)
    for read in (iterate, max_timestamp_record):
        with pytest.raises(ApiError) as caught:
            read(batch, size_max=1 << 20)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.fuzz
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@given(records=record_lists(), data=st.data())
def test_damaged_records_do_no_worse_than_be_refused(codec: Codec, records: list[Record], data: st.DataObject) -> None:
    damaged = bytearray(build_batch(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ApiError):
        iterate(damaged, crc_check=False)
    with contextlib.suppress(ApiError):
        find_timestamp(damaged, 10)
    with contextlib.suppress(ApiError):
        max_timestamp_record(damaged)
