"""What classic consumers send inside JoinGroup, for tests: written field by field, not by the code that reads it."""

from __future__ import annotations

from collections.abc import Mapping


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def subscription(
    *topics: str,
    version: int = 1,
    owned: Mapping[str, tuple[int, ...]] | None = None,
    generation: int = -1,
    rack: str | None = None,
) -> bytes:
    blob = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + b"".join(map(_text, topics))
    blob += b"\xff\xff\xff\xff"
    if version >= 1:
        blob += len(owned or {}).to_bytes(4, "big")
        for topic, numbers in (owned or {}).items():
            blob += _text(topic) + len(numbers).to_bytes(4, "big")
            blob += b"".join(number.to_bytes(4, "big") for number in numbers)
    if version >= 2:
        blob += generation.to_bytes(4, "big", signed=True)
    if version >= 3:
        blob += b"\xff\xff" if rack is None else _text(rack)
    return blob
