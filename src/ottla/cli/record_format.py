"""Records as text: JSON objects, kcat's format strings, and tables that grow as records come."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from ottla.cli.failures import UsageError
from ottla.client.consumer import ConsumedRecord

Formatter = Callable[[ConsumedRecord], bytes]

_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)|(\\)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_FIELDS: Final[dict[str, Formatter]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "h": lambda record: b",".join(_header(name, content) for name, content in record.headers),
    "T": lambda record: b"%d" % record.timestamp,
    "%": lambda record: b"%",
}
"""kcat's tokens: topic, partition, offset, key, value, their lengths (-1 for null; %R is that of the value in
four bytes), headers (NULL for null), time in ms."""


def compile_format(text: str) -> Formatter:
    """A function that writes a record by a format string in kcat's manner."""
    parts: list[Formatter | bytes] = []
    for token, escape, literal, lone in _TOKEN.findall(text):
        if literal:
            parts.append(literal.encode("utf-8", "surrogateescape"))
        elif escape:
            parts.append(_escape(escape))
        elif lone:
            raise UsageError("--format ends with a single backslash; write two of them for one")
        elif token in _FIELDS:
            parts.append(_FIELDS[token])
        else:
            raise UsageError(f"--format: %{token} is unknown; known are %{' %'.join(_FIELDS)}")
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def as_json(record: ConsumedRecord) -> bytes:
    """One object on one line. Bytes that are no UTF-8 are base64, and say so."""
    fields: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.log_append_time else "CreateTime",
    }
    fields |= json_content(record.key, record.value)
    if record.headers:
        fields["headers"] = json_headers(record.headers)
    # A header's name may be no UTF-8: its bytes are written as JSON's own escapes.
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def json_content(key: bytes | None, value: bytes | None) -> dict[str, object]:
    """Key and value for tools: text, null, or base64 that is said to be."""
    fields: dict[str, object] = {}
    _add(fields, "key", key)
    _add(fields, "value", value)
    return fields


def json_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, object]]:
    """Headers for tools, in their order; a name may be there twice."""
    return [_json_header(name, content) for name, content in headers]


def plain(*, keys: bool, headers: bool) -> Formatter:
    """The bare value on a line, with headers and key in front where wanted, tabs between."""
    text = ("%h\\t" if headers else "") + ("%k\\t" if keys else "") + "%s\\n"
    return compile_format(text)


def readable(content: bytes | None) -> str:
    """For people: text as it is, other bytes in base64, nothing at all as null; always on one line."""
    if content is None:
        return "null"
    try:
        return content.decode().translate(_UNPRINTABLE)
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(content).decode()}"


def readable_name(name: str) -> str:
    """A header's name for people, with the same care as its content."""
    return readable(_name_bytes(name))


def time_text(timestamp_ms: int) -> str:
    """A record's time for people."""
    if timestamp_ms < 0:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


_UNPRINTABLE: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {9: "\\t", 10: "\\n"}
"""A record must not be able to move the cursor of whoever looks at it."""


def _escape(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    raise UsageError(f"--format: \\{escape} is unknown; known are \\n \\t \\r \\0 \\\\ \\xNN")


def _header(name: str, content: bytes | None) -> bytes:
    return _name_bytes(name) + b"=" + (b"NULL" if content is None else content)


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _add(fields: dict[str, object], name: str, content: bytes | None) -> None:
    text, encoded = _text(content)
    fields[name] = text
    if encoded:
        fields[f"{name}_encoding"] = "base64"


def _json_header(name: str, content: bytes | None) -> dict[str, object]:
    text, encoded = _text(content)
    header: dict[str, object] = {"key": name, "value": text}
    return header | {"encoding": "base64"} if encoded else header


def _text(content: bytes | None) -> tuple[str | None, bool]:
    if content is None:
        return None, False
    try:
        return content.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), True
