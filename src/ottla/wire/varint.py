"""Variable-length integers: seven bits per byte, the lowest first, the top bit set on all but the last.

The protocol's flexible versions use unsigned ones of up to 32 bits for lengths; records use zigzag ones, where -1 is 1
and 1 is 2, of up to 32 or 64 bits. Readers refuse what is longer than the type allows. They raise IndexError at the end
of the buffer: a caller that parses a whole message turns that into its own error once, outside its loops.
"""

from __future__ import annotations

from typing import Final

from ottla.model.errors import MalformedMessageError

_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))


def unsigned(value: int) -> bytes:
    """`value`, which is not negative, as an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def signed(value: int) -> bytes:
    """`value` as a zigzag varint."""
    return unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def read_unsigned(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """The unsigned varint of at most 32 bits at `pos`, and the position after it."""
    byte = buf[pos]
    if byte < 0x80:
        return byte, pos + 1
    second = buf[pos + 1]
    if second < 0x80:
        return byte & 0x7F | second << 7, pos + 2
    return _read_long(buf, pos, 32)


def read_signed(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """The zigzag varint of at most 32 bits at `pos`, and the position after it."""
    value = buf[pos]
    if value < 0x80:
        return value >> 1 ^ -(value & 1), pos + 1
    second = buf[pos + 1]
    if second < 0x80:
        value = value & 0x7F | second << 7
        return value >> 1 ^ -(value & 1), pos + 2
    value, pos = _read_long(buf, pos, 32)
    return value >> 1 ^ -(value & 1), pos


def read_signed_long(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """The zigzag varint of at most 64 bits at `pos`, and the position after it."""
    value = buf[pos]
    if value < 0x80:
        return value >> 1 ^ -(value & 1), pos + 1
    second = buf[pos + 1]
    if second < 0x80:
        value = value & 0x7F | second << 7
        return value >> 1 ^ -(value & 1), pos + 2
    value, pos = _read_long(buf, pos, 64)
    return value >> 1 ^ -(value & 1), pos


def _read_long(buf: bytes | memoryview, pos: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while shift < bits:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and not value >> bits:
            return value, pos
        shift += 7
    raise MalformedMessageError(f"the varint that ends near byte {pos} has more than {bits} bits")
