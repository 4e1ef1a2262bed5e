"""Lengths and deltas of any size survive, and endless ones are refused."""

from __future__ import annotations

import pytest
from aiokafka.record.util import encode_varint
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import MalformedMessageError
from ottla.wire.varint import read_signed, read_signed_long, read_unsigned, signed, unsigned

EDGES = [0, 1, 63, 64, 127, 128, 8191, 8192, 16_383, 16_384, (1 << 21) - 1, 1 << 21, (1 << 28) - 1, 1 << 28]


@given(value=st.sampled_from([*EDGES, (1 << 32) - 1]) | st.integers(0, (1 << 32) - 1))
def test_an_unsigned_length_is_read_as_it_was_written(value: int) -> None:
    encoded = unsigned(value)
    assert len(encoded) == max((value.bit_length() + 6) // 7, 1)
    assert read_unsigned(memoryview(b"x" + encoded + b"x"), 1) == (value, 1 + len(encoded))


@given(value=st.sampled_from(EDGES + [-edge for edge in EDGES]) | st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_signed_length_is_read_as_it_was_written(value: int) -> None:
    encoded = signed(value)
    reference = bytearray()
    encode_varint(value, reference.append)
    assert encoded == reference
    assert read_signed(b"x" + encoded, 1) == (value, 1 + len(encoded))


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_signed_long_is_read_as_it_was_written(value: int) -> None:
    encoded = signed(value)
    assert read_signed_long(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("encoded", [b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x10", b"\xff" * 100])
def test_more_than_32_bits_are_refused(encoded: bytes) -> None:
    for read in (read_unsigned, read_signed):
        with pytest.raises(MalformedMessageError):
            read(encoded, 0)


@pytest.mark.parametrize("encoded", [b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02", b"\xff" * 100])
def test_more_than_64_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        read_signed_long(encoded, 0)


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\x80\x80\x80"])
def test_the_end_of_the_buffer_inside_a_number_is_noticed(encoded: bytes) -> None:
    for read in (read_unsigned, read_signed, read_signed_long):
        with pytest.raises(IndexError):
            read(encoded, 0)
