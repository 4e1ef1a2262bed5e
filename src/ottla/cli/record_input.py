"""Records from lines of text: plain, with a key in front, or as JSON objects."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.cli.failures import CommandError

LINE_BYTES_MAX: Final = 64 << 20
_READ_BYTES: Final = 256 << 10
_JSON_FIELDS: Final = frozenset({"key", "value", "headers", "partition", "timestamp", "key_encoding", "value_encoding"})
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_IGNORED_JSON_FIELDS: Final = frozenset({"topic", "offset", "timestamp_type"})
"""What `ottla consume` writes and a producer cannot choose."""

Headers = tuple[tuple[str, bytes | None], ...]


class TypedNumber:
    """A number as it was typed: what it means is for whoever reads the record to say, and a float would round it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _no_number(name: str) -> object:
    """Readers would get a word that is no JSON."""
    raise ValueError(f"{name} is a number that JSON cannot say")


_JSON: Final = json.JSONDecoder(parse_float=TypedNumber, parse_int=TypedNumber, parse_constant=_no_number)
_quoted: Final = json.encoder.encode_basestring


class InputRecord(NamedTuple):
    """A record to send; None where the input does not say."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """How a line becomes a record."""

    json_lines: bool = False
    key_separator: bytes | None = None
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> InputRecord:
        """The record of one line, without its line end; ValueError says what is wrong with it."""
        if self.json_lines:
            return parse_json(line)
        key: bytes | None = None
        value: bytes | None = line
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"no key separator {self.key_separator.decode(errors='replace')!r} in it")
            key, value = before, after
        return InputRecord(self._unless_null(value), self._unless_null(key))

    def _unless_null(self, text: bytes | None) -> bytes | None:
        return None if text is None or text == self.null_marker else text


def read_chunks(descriptor: int, read: Callable[[int, int], bytes] = os.read) -> Iterator[list[bytes]]:
    """Lines as they arrive, many at once from a file, one at a time from a person. A last line may lack its end."""
    begun: list[bytes] = []
    """The pieces of a line that has not ended yet. They are put together once: a long line comes in very many."""
    begun_bytes = 0
    while chunk := read(descriptor, _READ_BYTES):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            begun, begun_bytes = [], 0
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > LINE_BYTES_MAX:
            raise CommandError(f"a line is longer than {LINE_BYTES_MAX >> 20} MB: is the input text?")
        yield [line.removesuffix(b"\r") for line in lines]
    if begun_bytes:
        yield [b"".join(begun).removesuffix(b"\r")]


def parse_json(line: bytes) -> InputRecord:
    """A record from an object with key, value, headers, partition and timestamp, all of them optional."""
    try:
        return _record(_object(line))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def _object(line: bytes) -> dict[str, object]:
    try:
        fields = _JSON.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('not an object; write {"key": ..., "value": ...}')
    unknown = fields.keys() - _JSON_FIELDS - _IGNORED_JSON_FIELDS
    if unknown:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}; known are {', '.join(sorted(_JSON_FIELDS))}")
    return fields


def _record(fields: dict[str, object]) -> InputRecord:
    return InputRecord(
        _content(fields.get("value"), fields.get("value_encoding")),
        _content(fields.get("key"), fields.get("key_encoding")),
        _headers(fields.get("headers")),
        _whole(fields, "partition"),
        _timestamp(fields),
    )


def _content(value: object, encoding: object = None) -> bytes | None:
    """Text as UTF-8, or as the bytes that it encodes; anything that is not text as compact JSON."""
    if value is None:
        return None
    if encoding == "base64" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from None
    if encoding not in (None, "utf-8"):
        raise ValueError(f"encoding {encoding!r} is not one of utf-8, base64")
    text = value if isinstance(value, str) else _compact(value)
    return text.encode("utf-8", "surrogatepass")


def _compact(value: object) -> str:
    """JSON without blanks."""
    if isinstance(value, TypedNumber):
        return value.text
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_quoted(name)}:{_compact(item)}" for name, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_compact(item) for item in value]) + "]"
    return "null" if value is None else "true" if value else "false"


def _headers(value: object) -> Headers:
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((header_name(name), _content(content)) for name, content in value.items())
    if not isinstance(value, list):
        raise ValueError("headers must be an object or a list")
    return tuple(_header(item) for item in value)


def _header(item: object) -> tuple[str, bytes | None]:
    if isinstance(item, dict) and isinstance(item.get("key"), str):
        return header_name(item["key"]), _content(item.get("value"), item.get("encoding"))
    if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
        return header_name(item[0]), _content(item[1])
    raise ValueError('a header is {"key": ..., "value": ...}')


def header_name(name: str) -> str:
    """The name, if it can be sent; ValueError if not."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the header's name {name!r} is not UTF-8") from None
    return name


def _timestamp(fields: dict[str, object]) -> int | None:
    """Milliseconds since 1970; -1, as `ottla consume` shows it, for a record without a time."""
    value = _whole(fields, "timestamp")
    if value is not None and not -1 <= value < 1 << 63:
        raise ValueError("timestamp must be milliseconds since 1970")
    return value


def _whole(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, TypedNumber) and _WHOLE.fullmatch(value.text):
        return int(value.text)
    raise ValueError(f"{name} must be a whole number")
