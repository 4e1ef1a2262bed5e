"""Whole batches get into the log and damaged or lying ones do not."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire import batch as record_batch
from ottla.wire.batch import (
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    assign,
    check,
    iterate,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from ottla.wire.crc import crc32c
from ottla.wire.records import Record, build_batch

THREE = build_batch([Record(i, 1000 + i, b"key", b"value") for i in range(3)])
ATTRIBUTES, LAST_DELTA, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 21, 23, 43, 51, 53, 57


def batch(count: int = 3, **fields: int) -> memoryview:
    records = [Record(i, 1000 + i, b"key", b"value") for i in range(count)]
    return memoryview(build_batch(records, **fields))


def changed(position: int, layout: str, value: int, *, honest_crc: bool = True) -> memoryview:
    """A batch of three records with one field changed, and mostly a checksum that fits."""
    altered = bytearray(THREE)
    struct.pack_into(layout, altered, position, value)
    if honest_crc:
        struct.pack_into(">I", altered, 17, crc32c(memoryview(altered)[21:]))
    return memoryview(altered)


def refused(given_batch: memoryview) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check(given_batch)
    assert caught.value.message
    return caught.value.code


def test_a_header_says_what_the_producer_meant() -> None:
    header = check(batch(producer_id=7, producer_epoch=2, base_sequence=11, codec=4))
    assert header == BatchHeader(
        base_offset=0,
        length=len(batch(codec=4)) - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=header.crc,
        attributes=4,
        last_offset_delta=2,
        base_timestamp=1000,
        max_timestamp=1002,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        record_count=3,
    )
    assert (header.codec, header.last_offset, header.last_sequence, header.size) == (4, 2, 13, len(batch(codec=4)))


def test_attribute_bits_are_told_apart() -> None:
    bits = {"log_append_time": 0x08, "is_transactional": 0x10, "is_control": 0x20}
    for name, bit in bits.items():
        header = read_header(batch(attributes=bit))
        assert [other for other in bits if getattr(header, other)] == [name]
    assert read_header(batch()).delete_horizon is None
    assert read_header(batch(attributes=0x40)).delete_horizon == 1000


def test_sequences_wrap_to_zero() -> None:
    assert read_header(batch(producer_id=1, base_sequence=(1 << 31) - 2)).last_sequence == 0
    assert read_header(batch()).last_sequence == -1


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [1, 3, 500])
def test_batches_of_every_codec_are_taken(codec: int, count: int) -> None:
    assert check(batch(count, codec=codec)).record_count == count


def test_transactional_batches_and_unknown_flags_are_taken() -> None:
    check(batch(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0))
    check(batch(attributes=0x80))


@pytest.mark.parametrize("end", [0, 1, 16, 60, 61, len(THREE) - 1])
def test_a_cut_batch_is_refused(end: int) -> None:
    assert refused(memoryview(THREE)[:end]) is ErrorCode.INVALID_RECORD


def test_a_second_batch_is_refused() -> None:
    assert refused(memoryview(THREE + THREE)) is ErrorCode.INVALID_RECORD
    assert refused(memoryview(THREE + b"junk")) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("position", [*range(17, 61), 61, len(THREE) - 1])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    flipped = memoryview(bytearray(THREE))
    flipped[position] ^= 0x10
    assert refused(flipped) is ErrorCode.CORRUPT_MESSAGE


LIES = {
    "an old message format": (changed(16, ">b", 1, honest_crc=False), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "the oldest message format": (changed(16, ">b", 0, honest_crc=False), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a message format to come": (changed(16, ">b", 3, honest_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a length below the header's": (changed(8, ">i", 20, honest_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (changed(8, ">i", -12, honest_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a length beyond the batch": (changed(8, ">i", 1 << 30, honest_crc=False), ErrorCode.INVALID_RECORD),
    "no records": (changed(COUNT, ">i", 0), ErrorCode.INVALID_RECORD),
    "fewer than no records": (changed(COUNT, ">i", -1), ErrorCode.INVALID_RECORD),
    "more records than offsets": (changed(COUNT, ">i", 4), ErrorCode.INVALID_RECORD),
    "more offsets than records": (changed(LAST_DELTA, ">i", 7), ErrorCode.INVALID_RECORD),
    "a negative last offset": (changed(LAST_DELTA, ">i", -1), ErrorCode.INVALID_RECORD),
    "an offset of its own": (changed(0, ">q", 5), ErrorCode.INVALID_RECORD),
    "control records": (changed(ATTRIBUTES, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "the broker's time": (changed(ATTRIBUTES, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
    "a delete horizon": (changed(ATTRIBUTES, ">h", 0x40), ErrorCode.INVALID_RECORD),
    "an unknown codec": (changed(ATTRIBUTES, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a producer without a sequence": (changed(PRODUCER_ID, ">q", 9), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("lying", "code"), LIES.values(), ids=LIES.keys())
def test_a_batch_with_a_false_claim_is_refused(lying: memoryview, code: ErrorCode) -> None:
    assert refused(lying) is code


def test_a_producer_without_an_epoch_is_refused() -> None:
    assert refused(batch(producer_id=9, base_sequence=0)) is ErrorCode.INVALID_RECORD


def test_a_few_bytes_cannot_claim_a_billion_offsets() -> None:
    claimed = bytearray(batch())
    struct.pack_into(">i", claimed, LAST_DELTA, (1 << 30) - 1)
    struct.pack_into(">i", claimed, COUNT, 1 << 30)
    struct.pack_into(">I", claimed, 17, crc32c(memoryview(claimed)[21:]))
    assert refused(memoryview(claimed)) is ErrorCode.INVALID_RECORD


def test_assigning_offsets_keeps_the_checksum() -> None:
    assigned = batch()
    before = bytes(assigned)
    assign(assigned, 0, 1 << 40, len(assigned) - LENGTH_PREFIX_BYTES, 12)
    header = read_header(assigned)
    assert (header.base_offset, header.partition_leader_epoch, header.last_offset) == (1 << 40, 12, (1 << 40) + 2)
    assert record_batch.crc_matches(assigned, header)
    assert bytes(assigned[16:]) == before[16:]
    assert bytes(assigned[8:12]) == before[8:12]


def test_the_brokers_time_comes_with_a_new_checksum() -> None:
    stamped = batch(codec=2)
    set_log_append_time(stamped, 99_999)
    header = read_header(stamped)
    assert (header.max_timestamp, header.log_append_time, header.codec) == (99_999, True, 2)
    assert (header.base_timestamp, header.last_offset_delta, header.record_count) == (1000, 2, 3)
    assert record_batch.crc_matches(stamped, header)


def test_another_max_timestamp_comes_with_a_new_checksum() -> None:
    corrected = batch(codec=2)
    before = read_header(corrected)
    set_max_timestamp(corrected, 77_777)
    after = check(corrected)
    assert after._replace(crc=before.crc) == before._replace(max_timestamp=77_777)


def test_walking_stops_before_a_batch_that_was_cut_off() -> None:
    whole = bytes(batch(1)) + bytes(batch(2))
    found = [(pos, header.record_count) for pos, header in iterate(whole)]
    assert found == [(0, 1), (len(batch(1)), 2)]
    for end in range(len(batch(1)), len(whole)):
        assert [pos for pos, _ in iterate(memoryview(whole)[:end])] == [0]
    assert list(iterate(b"")) == []


@pytest.mark.parametrize("nonsense", [bytes(61), changed(8, ">i", 0, honest_crc=False), changed(16, ">b", 1)])
def test_walking_over_nonsense_is_an_error_and_not_a_loop(nonsense: bytes | memoryview) -> None:
    with pytest.raises(ApiError) as caught:
        list(iterate(nonsense))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.fuzz
@pytest.mark.parametrize("read", [check, lambda damaged: list(iterate(damaged))], ids=["check", "iterate"])
@given(data=st.data())
def test_no_bytes_do_worse_than_a_refusal(read: Callable[[memoryview], object], data: st.DataObject) -> None:
    damaged = bytearray(THREE)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.just(len(damaged)) | st.integers(0, len(damaged))) :]
    if data.draw(st.booleans()) and len(damaged) > record_batch.HEADER_BYTES:
        struct.pack_into(">I", damaged, 17, crc32c(memoryview(damaged)[21:]))
    with contextlib.suppress(ApiError):
        read(memoryview(damaged))
