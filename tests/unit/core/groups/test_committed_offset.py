"""The packed forms of an offset."""

from __future__ import annotations

import struct
import sys
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups.committed_offset import FORM_AT, CommittedOffset, PackedOffsets, are_long, is_long, times
from ottla.core.groups.records import OffsetRecord
from ottla.model.ids import ZERO_UUID

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
offsets = st.integers(0, (1 << 56) - 1)


def long_form(offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, topic_id: UUID) -> bytes:
    text = metadata.encode()
    start = struct.pack(">hqiB", 4, offset, leader_epoch, len(text) + 1)
    return start + text + struct.pack(">qBBB16s", commit_timestamp, 1, 0, 16, topic_id.bytes)


@given(st.lists(st.tuples(int64s, int32s, texts, int64s, int64s, st.uuids()), max_size=5))
def test_what_is_packed_is_what_comes_out(values: list[tuple[int, int, str, int, int, UUID]]) -> None:
    form = PackedOffsets()
    packed = [form.pack(OffsetRecord("g", "t", 0, *value)) for value in values]
    for value, data in zip(values, packed, strict=True):
        assert form.unpack(data) == CommittedOffset(*value)
        assert times(data) == value[3:5]
        assert form.topic_id(data) == value[5]
        assert data[FORM_AT] == 0
        assert not is_long(data)


@given(st.lists(st.tuples(offsets, int32s, texts, int64s, st.uuids()), max_size=5))
def test_the_long_form_is_read_as_it_is(values: list[tuple[int, int, str, int, UUID]]) -> None:
    form = PackedOffsets()
    for offset, leader_epoch, metadata, commit_timestamp, topic_id in values:
        data = long_form(offset, leader_epoch, metadata, commit_timestamp, topic_id)
        assert is_long(data)
        assert are_long([data, data]) is (metadata == "")
        assert form.topic_id(data) == topic_id
        assert form.unpack(data) == (offset, leader_epoch, metadata, commit_timestamp, -1, topic_id)
        assert times(data) == (commit_timestamp, -1)


@given(
    st.sampled_from(["", "m", "m" * 10, "m" * 18, "ü" * 63]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2),
    st.integers(0, 170),
)
def test_what_is_not_quite_the_long_form_is_not_taken_for_it(
    metadata: str, changes: list[tuple[int, int]], size: int
) -> None:
    data = bytearray(long_form(7, 3, metadata, 1_000, UUID(int=5))[: size or None])
    for at, byte in changes:
        data[at % len(data)] = byte
    taken = bytes(data)
    if not is_long(taken):
        assert not are_long([taken] * 9)
        return
    found = PackedOffsets().unpack(taken)
    assert found.offset >= 0
    assert taken == long_form(*found[:4], found.topic_id)


def test_one_that_is_not_of_the_long_form_is_found_among_many() -> None:
    data = long_form(7, 3, "", 1_000, UUID(int=5))
    for at in (0, 1, 2, FORM_AT, 23, 24, 25):
        other = bytearray(data)
        other[at] ^= 0x80
        for number in range(9):
            values = [data] * 9
            values[number] = bytes(other)
            assert not are_long(values)
    assert not are_long([data[:-1], data + b"\x00"])
    assert are_long([data] * 9)


def test_topics_have_one_id_in_memory() -> None:
    form = PackedOffsets()
    topic_id = UUID(int=9)
    small = form.pack(OffsetRecord("g", "t", 0, 1, topic_id=topic_id))
    for data in (small, long_form(1, 1, "", 1, UUID(int=9)), long_form(1, 1, "note", 1, UUID(int=9))):
        assert form.unpack(data).topic_id is topic_id
        assert form.topic_id(data) is topic_id
    assert form.topic_id(long_form(1, 1, "", 1, UUID(int=0))) is ZERO_UUID


def test_an_offset_takes_64_bytes_and_a_loaded_one_80() -> None:
    form = PackedOffsets()
    packed = form.pack(OffsetRecord("group", "topic", 3, 1 << 40, 5, "", 1_700_000_000_000, -1, UUID(int=3)))
    assert sys.getsizeof(packed) <= 64
    assert sys.getsizeof(long_form(1 << 40, 5, "", 1_700_000_000_000, UUID(int=3))) <= 80
