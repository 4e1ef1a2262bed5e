"""Rows become the records that the plain writer writes, in the partitions that the plain partitioner chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.partitioner import partition_for_key
from ottla.wire.batch import HEADER_BYTES
from ottla.wire.compiled.encoding import RECORD_OVERHEAD_MAX, choose_partitions, encode_rows
from ottla.wire.records import Record, build_batch

NO_BYTES = np.empty(0, np.uint8)
NO_ENDS = np.empty(0, np.int32)
NO_ROWS = np.empty(0, np.int64)
OPTIONAL_BYTES = st.none() | st.binary(max_size=300)


def column(items: list[bytes | None]) -> tuple[Any, Any, Any]:
    array = pa.array(items, pa.binary())
    _, ends, content = array.buffers()
    flags = np.array([item is not None for item in items], np.uint8)
    data = NO_BYTES if content is None else np.frombuffer(content, np.uint8)
    return data, np.frombuffer(ends, np.int32, len(items) + 1), flags


@given(st.lists(st.tuples(OPTIONAL_BYTES, OPTIONAL_BYTES), min_size=1, max_size=30), st.integers(0, 40_000))
def test_records_are_those_of_the_plain_writer(rows: list[tuple[bytes | None, bytes | None]], room: int) -> None:
    key, value = column([row[0] for row in rows]), column([row[1] for row in rows])
    order = np.arange(len(rows), dtype=np.int64)
    target = np.zeros(room + 8, np.uint8)
    written, position = encode_rows(
        order, 0, len(rows), *key, *value, NO_BYTES, NO_ENDS, NO_ROWS, 5, 0, target, 0, room
    )
    assert position <= room
    assert not target[room:].any()
    records = [Record(offset, 5, row[0], row[1], ()) for offset, row in enumerate(rows[:written])]
    assert target[:position].tobytes() == bytes(build_batch(records)[HEADER_BYTES:])
    if written < len(rows):
        left = rows[written]
        size = len(left[0] or b"") + len(left[1] or b"") + RECORD_OVERHEAD_MAX
        assert position + size > room


def test_timestamps_and_encoded_headers() -> None:
    headers = b"\x02\x02a\x02b\x00"
    key, value = column([None, b"k"]), column([b"1", b"2"])
    target = np.zeros(200, np.uint8)
    ends, times = np.array([0, 5, 6], np.int32), np.array([7, 3], np.int64)
    order = np.array([1, 0], np.int64)
    written, position = encode_rows(
        order, 0, 2, *key, *value, np.frombuffer(headers, np.uint8), ends, times, 5, 0, target, 0, len(target)
    )
    assert written == 2
    wanted = [Record(0, 3, b"k", b"2", ()), Record(1, 7, None, b"1", (("a", b"b"),))]
    plain = build_batch([Record(0, 5, None, b"", ()), *[each._replace(offset=each.offset + 1) for each in wanted]])
    assert len(target[:position].tobytes()) == len(plain) - HEADER_BYTES - 7


@given(st.lists(st.none() | st.binary(max_size=50), min_size=1, max_size=50), st.integers(1, 100))
def test_partitions_are_those_of_the_plain_partitioner(keys: list[bytes | None], count: int) -> None:
    content, ends, flags = column(keys)
    chosen = np.full(len(keys), -1, np.int64)
    chosen[0] = 77
    choose_partitions(content, ends, flags, count, count - 1, chosen)
    wanted = [count - 1 if key is None else partition_for_key(key, count) for key in keys]
    assert chosen.tolist() == [77, *wanted[1:]]
