"""Java's .properties files, in which Kafka's server.properties is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ottla.model.errors import ConfigError

_LINE: Final = re.compile(r"\r\n|\r|\n")
_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE: Final = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(text: str, origin: str = "properties") -> dict[str, str]:
    """The pairs of a file; of a key given twice the last one counts. `origin` names the file in an error."""
    pairs: dict[str, str] = {}
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        try:
            pairs[_unescape(raw_key)] = _unescape(raw_value)
        except ValueError as error:
            raise ConfigError(f"{origin}, line {number}: {error}") from None
    return pairs


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that hold a pair, with continuation lines joined and the number of their first line."""
    pending: str | None = None
    first = 0
    for number, raw in enumerate(_LINE.split(text), 1):
        line = raw.lstrip(_BLANK)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, first = "", number
        pending += line
        if _continues(line):
            pending = pending[:-1]
        else:
            yield first, pending
            pending = None
    if pending is not None:
        yield first, pending


def _continues(line: str) -> bool:
    """An odd number of backslashes at the end: the last one escapes the line break."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value part: at the first `=`, `:` or blank that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (found := text.find("\\", position)) >= 0:
        parts.append(text[position:found])
        letter = text[found + 1 : found + 2]
        position = found + 2
        if letter == "u":
            digits = text[position : position + 4]
            if not _UNICODE.fullmatch(digits):
                raise ValueError(f"\\u{digits} is not a character, four hexadecimal digits are needed")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    parts.append(text[position:])
    return "".join(parts)
