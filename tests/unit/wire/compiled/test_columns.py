"""The columns of fetched batches; `tests/unit/pyspark_ottla/test_decode.py` compares them as tables."""

from __future__ import annotations

import numpy as np
import pytest

from ottla.wire.batch import HEADER_BYTES
from ottla.wire.compiled.batches import Header, scan_batches
from ottla.wire.compiled.columns import Count, Ends, Number, Source, fill_columns
from ottla.wire.compiled.records import BodyFault
from ottla.wire.records import Record, build_batch

ROWS, ROOM = 8, 256


class Filled:
    """What a kernel wrote for some batches."""

    def __init__(self, batches: bytes, first: int = 0, last: int = 100, *, with_headers: bool = True) -> None:
        chunk = np.frombuffer(batches, np.uint8)
        headers = np.empty((16, Header.COUNT), np.int64)
        count, *_ = scan_batches(chunk, len(chunk), headers)
        sources = np.zeros((count, Source.COUNT), np.int64)
        sources[:, Source.WANTED] = 1
        sources[:, Source.START] = headers[:count, Header.POSITION] + HEADER_BYTES
        sources[:, Source.END] = headers[:count, Header.POSITION] + headers[:count, Header.SIZE]
        self.numbers = np.zeros((Number.COUNT, ROWS), np.int64)
        self.ends = np.zeros((Ends.COUNT, ROWS + 1), np.int32)
        self.flags = np.zeros((2, ROWS), np.uint8)
        self.keys, self.values = np.zeros(ROOM, np.uint8), np.zeros(ROOM, np.uint8)
        self.header_ends = np.zeros((2, ROWS + 1), np.int32)
        self.names, self.header_values = np.zeros(ROOM, np.uint8), np.zeros(ROOM, np.uint8)
        self.header_flags, self.counts = np.zeros(ROWS, np.uint8), np.zeros(Count.COUNT, np.int64)
        self.fault, self.batch, self.record, self.position = fill_columns(
            chunk, np.empty(0, np.uint8), headers[:count], sources, 0, count, first, last, with_headers, self.numbers,
            np.zeros(ROWS, np.int32), self.ends, self.keys, self.values, self.flags, self.header_ends, self.names,
            self.header_values, self.header_flags, self.counts,
        )  # fmt: skip


BATCHES = bytes(
    build_batch([Record(3, 10, b"ka", None, ()), Record(5, 20, None, b"vb", (("h", b"1"), ("i", None)))])
    + build_batch([Record(9, 30, b"", b"", ())])
)


def test_numbers_bytes_ends_and_counts() -> None:
    filled = Filled(BATCHES)
    assert filled.fault == BodyFault.NONE
    assert filled.numbers[Number.OFFSET, :3].tolist() == [3, 5, 9]
    assert filled.numbers[Number.TIMESTAMP_US, :3].tolist() == [10_000, 20_000, 30_000]
    assert filled.flags[:, :3].tolist() == [[1, 0, 1], [0, 1, 1]]
    assert filled.ends[Ends.KEY, :4].tolist() == [0, 2, 2, 2]
    assert filled.ends[Ends.VALUE, :4].tolist() == [0, 0, 2, 2]
    assert filled.ends[Ends.HEADERS, :4].tolist() == [0, 0, 2, 2]
    assert (filled.keys[:2].tobytes(), filled.values[:2].tobytes()) == (b"ka", b"vb")
    assert (filled.names[:2].tobytes(), filled.header_values[:1].tobytes()) == (b"hi", b"1")
    assert filled.header_flags[:2].tolist() == [1, 0]
    assert filled.counts.tolist() == [3, 2, 2, 1, 1, 2, 2, 1, 1, 2]


def test_a_range_of_offsets() -> None:
    assert Filled(BATCHES, 4, 9).numbers[Number.OFFSET, :2].tolist() == [5, 0]


def test_headers_are_left_alone_where_nobody_wants_them() -> None:
    assert Filled(BATCHES, with_headers=False).counts[Count.HEADERS] == 0


@pytest.mark.parametrize(
    ("position", "byte", "fault"),
    [
        (HEADER_BYTES, 0x7E, None),
        (HEADER_BYTES - 1, 1, BodyFault.BODY_NOT_FILLED),
        (HEADER_BYTES - 4, 0x7F, BodyFault.COUNT),
    ],
)
def test_a_fault_is_told_with_its_place(position: int, byte: int, fault: BodyFault | None) -> None:
    damaged = bytearray(BATCHES)
    damaged[position] = byte
    filled = Filled(bytes(damaged))
    assert filled.fault != BodyFault.NONE
    assert fault is None or filled.fault == fault
    assert filled.batch == 0
