"""Writing Python source, piece by piece, and turning it into a function.

Also what the written functions call: the slow paths of varints and lengths, ids, and the errors.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import cache, lru_cache
from struct import Struct
from typing import Any, Final
from uuid import UUID

from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.model.limits import ARRAY_ELEMENTS_MAX

UVARINT_BYTES_MAX: Final = 5
SHORT_ARRAY_MAX: Final = 16
TEXT_BYTES_MAX: Final = 0x7FFF
"""Kafka's clients refuse longer strings, also where the compact form could carry them."""


class Source:
    """Lines of one function under construction, and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def indent(self, opening: str) -> None:
        """Writes `opening`, and what follows one step to the right."""
        self.line(opening)
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A variable name that nothing else uses."""
        self._count += 1
        return f"{stem}{self._count}"

    def name(self, value: object, stem: str) -> str:
        """The name by which the function reaches `value`."""
        key = id(value)
        if key not in self._names:
            self._names[key] = self.fresh(stem)
            self.objects[self._names[key]] = value
        return self._names[key]

    def build(self, title: str, signature: str) -> Callable[..., Any]:
        """The function. Its source is kept for tracebacks, as dataclasses and attrs do."""
        text = "\n".join([f"def codec({signature}):", *self.lines, ""])
        filename = f"<codec {title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        exec(compile(text, filename, "exec"), self.objects)
        function: Callable[..., Any] = self.objects["codec"]
        return function


@cache
def fixed_struct(codes: str) -> Struct:
    """The packer of adjacent fixed-size fields, shared by all messages that have the same run of them."""
    return Struct(">" + codes)


@cache
def short_array_readers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """What reads arrays with fewer than `SHORT_ARRAY_MAX` elements, by length."""
    return tuple(Struct(f">{length}{code}").unpack_from for length in range(SHORT_ARRAY_MAX))


@cache
def short_array_writers(length_code: str, code: str) -> tuple[Callable[..., bytes], ...]:
    """What writes arrays with fewer than `SHORT_ARRAY_MAX` elements, their length before them, by length."""
    return tuple(Struct(f">{length_code}{length}{code}").pack for length in range(SHORT_ARRAY_MAX))


@lru_cache(maxsize=8192)
def uuid_of(raw: bytes) -> UUID:
    """Building a UUID costs a microsecond and topic ids come again and again."""
    return UUID(bytes=raw)


def uvarint(value: int) -> bytes:
    """An unsigned varint of 32 bits."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


UVARINTS: Final = tuple(uvarint(value) for value in range(128))


def long_uvarint(buffer: bytes | bytearray | memoryview, position: int, first: int) -> tuple[int, int]:
    """The value whose first byte was `first` and whose second is at `position`, and the position after it."""
    value = first & 127
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32:
                break
            return value, position
    raise MalformedMessageError("a varint is longer than 32 bits")


def compact_length(buffer: bytes, position: int, first: int, name: str) -> tuple[int, int]:
    """The slow path of a compact length that must not be null: several bytes long, or null after all."""
    value, position = long_uvarint(buffer, position, first) if first > 127 else (first, position)
    if value == 0:
        raise null_refused(name)
    return value, position


def long_text_length(buffer: bytes, position: int, first: int) -> tuple[int, int]:
    """The slow path of a compact string's length that may be null."""
    value, position = long_uvarint(buffer, position, first)
    if value > TEXT_BYTES_MAX + 1:
        raise MalformedMessageError(f"a string of {value - 1} bytes is longer than {TEXT_BYTES_MAX}")
    return value, position


def compact_text_length(buffer: bytes, position: int, first: int, name: str) -> tuple[int, int]:
    """The slow path of a compact string's length that must not be null."""
    if first == 0:
        raise null_refused(name)
    return long_text_length(buffer, position, first)


def text_uvarint(value: int) -> bytes:
    """The compact length of a string."""
    if value > TEXT_BYTES_MAX + 1:
        raise ValueError(f"a string of {value - 1} bytes is longer than {TEXT_BYTES_MAX}")
    return uvarint(value)


def skip_tags(buffer: bytes | bytearray | memoryview, position: int, count: int, end: int) -> int:
    """Passes over `count` tagged fields that nobody here knows."""
    if count > 127:
        count, position = long_uvarint(buffer, position, count)
    for _ in range(count):
        _, size, position = tag_header(buffer, position, end)
        position += size
    return position


def tag_header(buffer: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int, int]:
    """A tag's number, the size of its field, and where the field begins."""
    number = buffer[position]
    position += 1
    if number > 127:
        number, position = long_uvarint(buffer, position, number)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = long_uvarint(buffer, position, size)
    if size > end - position:
        raise MalformedMessageError(f"tagged field {number} says {size} bytes and {end - position} are left")
    return number, size, position


def null_refused(name: str) -> MalformedMessageError:
    return MalformedMessageError(f"{name} is null and must not be")


def length_refused(name: str, length: int, left: int) -> MalformedMessageError:
    limit = f"{left} bytes are left" if length <= ARRAY_ELEMENTS_MAX else f"{ARRAY_ELEMENTS_MAX} is the limit"
    return MalformedMessageError(f"{name} says {length} elements and {limit}")


def field_refused(title: str, name: str) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{title} has no field {name}, and it is set")
