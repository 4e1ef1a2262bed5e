"""Memory by address: unaligned loads, copies, comparisons and a wide multiplication, for kernels.

Why addresses. numba counts references whenever an array is handed from one function to another, which costs more than
reading a record. So a kernel takes arrays, asks for their addresses once (`address_of`), and its helpers see plain
numbers. The kernel's own arguments keep the arrays alive.

Nothing here checks a bound. Callers have: every address and length that gets here lies inside its array.
"""

# numba has no types of its own: what it decorates is untyped to the type checker.
# mypy: disable-error-code="misc, no-untyped-call, no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import numba.extending
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

intrinsic: Any = numba.extending.intrinsic
"""Untyped on purpose: its result is called with other arguments than the function that it decorates."""

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_WIDE = ir.IntType(128)


@intrinsic
def address_of(_context, array):
    """Where the bytes of a contiguous array start."""

    def generate(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(view.data, _WORD)

    return types.int64(array), generate


def _load(builder, address, bits):
    loaded = builder.load(builder.inttoptr(address, ir.IntType(bits).as_pointer()))
    loaded.align = 1
    return loaded if bits == 64 else builder.zext(loaded, _WORD)


@intrinsic
def load_byte(_context, _address):
    """The byte at an address, as a signed number that is not negative."""
    return types.int64(types.int64), lambda _c, builder, _s, args: _load(builder, args[0], 8)


@intrinsic
def load_half(_context, _address):
    """4 bytes in the machine's own order."""
    return types.uint64(types.int64), lambda _c, builder, _s, args: _load(builder, args[0], 32)


@intrinsic
def load_word(_context, _address):
    """8 bytes in the machine's own order."""
    return types.uint64(types.int64), lambda _c, builder, _s, args: _load(builder, args[0], 64)


@intrinsic
def load_number(_context, _address):
    """An element of an array of i64."""
    return types.int64(types.int64), lambda _c, builder, _s, args: _load(builder, args[0], 64)


@intrinsic
def store_byte(_context, _address, _value):
    """Write the lowest byte of a number."""

    def generate(context, builder, _signature, args):
        address, value = args
        builder.store(builder.trunc(value, _BYTE), builder.inttoptr(address, _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy_bytes(_context, _target, _source, _length):
    """Copy between stretches of memory that do not overlap."""

    def generate(context, builder, _signature, args):
        to, origin = (builder.inttoptr(address, _BYTE.as_pointer()) for address in args[:2])
        cgutils.raw_memcpy(builder, to, origin, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def prefetch(_context, _address):
    """Ask for the cache line at an address, which will be read soon. Any address will do."""

    def generate(context, builder, _signature, args):
        flag, byte = ir.IntType(32), _BYTE.as_pointer()
        function_type = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0i8")
        builder.call(function, [builder.inttoptr(args[0], byte), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def multiply_fold(_context, _left, _right):
    """The 128-bit product of two words, its halves folded into one word."""

    def generate(_c, builder, _signature, args):
        product = builder.mul(builder.zext(args[0], _WIDE), builder.zext(args[1], _WIDE))
        high = builder.lshr(product, ir.Constant(_WIDE, 64))
        return builder.trunc(builder.xor(product, high), _WORD)

    return types.uint64(types.uint64, types.uint64), generate


@njit
def equal_bytes(left, right, length):
    """Whether two stretches of memory hold the same bytes."""
    if length >= 8:
        last = length - 8
        at = 0
        while at < last:
            if load_word(left + at) != load_word(right + at):
                return False
            at += 8
        return load_word(left + last) == load_word(right + last)
    at = 0
    while at < length and load_byte(left + at) == load_byte(right + at):
        at += 1
    return at == length
