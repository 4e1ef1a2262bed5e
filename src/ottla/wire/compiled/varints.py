"""Zigzag varints by address, for kernels."""

# numba has no types of its own: what it decorates is untyped to the type checker.
# mypy: disable-error-code="misc, no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

from numba import int64, njit, uint64

from ottla.wire.compiled.memory import store_byte


@njit
def write_varint(address, value):
    """Write a zigzag varint of up to 64 bits; returns the address after it."""
    left = uint64((value << 1) ^ (value >> 63))
    while left > uint64(0x7F):
        store_byte(address, int64(left & uint64(0x7F)) | 0x80)
        left >>= uint64(7)
        address += 1
    store_byte(address, int64(left))
    return address + 1


@njit
def varint_bytes(value):
    """How many bytes `write_varint` writes."""
    left = uint64((value << 1) ^ (value >> 63))
    size = 1
    while left > uint64(0x7F):
        left >>= uint64(7)
        size += 1
    return size
