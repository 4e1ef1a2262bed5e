"""The small form of an offset."""

from __future__ import annotations

import sys
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups.committed_offset import CommittedOffset, PackedOffsets, times
from ottla.core.groups.records import OffsetRecord

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(int64s, int32s, texts, int64s, int64s, st.uuids()), max_size=5))
def test_what_is_packed_is_what_comes_out(values: list[tuple[int, int, str, int, int, UUID]]) -> None:
    form = PackedOffsets()
    packed = [form.pack(OffsetRecord("g", "t", 0, *value)) for value in values]
    for value, data in zip(values, packed, strict=True):
        assert form.unpack(data) == CommittedOffset(*value)
        assert times(data) == value[3:5]
        assert form.topic_id(data) == value[5]


def test_an_offset_takes_64_bytes() -> None:
    form = PackedOffsets()
    packed = form.pack(OffsetRecord("group", "topic", 3, 1 << 40, 5, "", 1_700_000_000_000, -1, UUID(int=3)))
    assert sys.getsizeof(packed) <= 64
