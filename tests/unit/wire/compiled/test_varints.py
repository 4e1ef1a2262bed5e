"""Varints by address are those of the plain writer."""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import int64, njit, uint8

from ottla.wire.compiled.memory import address_of
from ottla.wire.compiled.varints import varint_bytes, write_varint
from ottla.wire.varint import signed


@njit(int64(uint8[::1], int64))
def written(target, value):
    return write_varint(address_of(target), value) - address_of(target)


@njit(int64(int64))
def measured(value):
    return varint_bytes(value)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300))
def test_a_varint_is_written_as_it_is_measured(value: int) -> None:
    target = np.zeros(10, np.uint8)
    size = written(target, value)
    assert target[:size].tobytes() == signed(value)
    assert measured(value) == size
