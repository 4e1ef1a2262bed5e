"""Memory follows what clients have sent, not what they say they will."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.receive import (
    LARGE_REST_BYTES,
    POOLED_BITS_MAX,
    POOLED_BYTES_PER_SIZE_MAX,
    LargeFrame,
    ReceiveBuffers,
)
from ottla.server.transport import Transport


class Pieces:
    """A transport that hands out a text in pieces of chosen sizes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = data
        self._sizes = sizes
        self._position = 0

    def recv_into(self, into: memoryview, count: int) -> int:
        assert len(into) == count > 0
        size = min(count, self._sizes.pop(0) if self._sizes else count, len(self._data) - self._position)
        into[:size] = self._data[self._position : self._position + size]
        self._position += size
        return size

    def as_transport(self) -> Transport:
        return self  # type: ignore[return-value]


@given(
    head=st.integers(LARGE_REST_BYTES, 4 * LARGE_REST_BYTES),
    rest=st.integers(1, 3_000_000),
    sizes=st.lists(st.integers(1, 500_000), max_size=20),
    idle=st.booleans(),
)
def test_a_large_frame_arrives_whole_in_memory_of_twice_its_size(
    head: int, rest: int, sizes: list[int], idle: bool
) -> None:
    data = random.Random(head).randbytes(head + rest)
    buffers = ReceiveBuffers()
    if idle:
        buffers.give_back(memoryview(bytearray(1 << 20)))
    large = LargeFrame(buffers, memoryview(data)[:head], len(data))
    transport = Pieces(data[head:], sizes).as_transport()
    while not large.is_complete():
        large.receive(transport)
        assert len(large._buffer) <= max(2 * large.arrived_bytes, idle << 20)
    assert bytes(large.frame()) == data[4:]


def test_an_idle_buffer_that_fits_is_lent() -> None:
    buffers = ReceiveBuffers()
    fits = memoryview(bytearray(1 << 20))
    buffers.give_back(memoryview(bytearray(1 << 17)))
    buffers.give_back(fits)
    assert buffers.take(LARGE_REST_BYTES, 900_000) is fits
    assert len(buffers.take(LARGE_REST_BYTES, 900_000)) == 2 * LARGE_REST_BYTES


def test_a_released_buffer_serves_the_next_frame() -> None:
    buffers = ReceiveBuffers()
    head = memoryview(bytes(LARGE_REST_BYTES))
    first = LargeFrame(buffers, head, 60_000)
    first.release()
    second = LargeFrame(buffers, head, 60_000)
    assert second._buffer is first._buffer


@pytest.mark.parametrize("bits", [16, 20, POOLED_BITS_MAX, POOLED_BITS_MAX + 1])
def test_idle_memory_is_bounded(bits: int) -> None:
    buffers = ReceiveBuffers()
    for _ in range(200):
        buffers.give_back(memoryview(bytearray(1 << bits)))
    assert buffers.idle_bytes() == (POOLED_BYTES_PER_SIZE_MAX if bits <= POOLED_BITS_MAX else 0)
