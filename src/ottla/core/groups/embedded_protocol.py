"""What consumers tell each other inside the classic protocol: read where classic members meet a consumer group.

A blob begins with its version in two bytes. Later versions only add fields at the end, and a reader takes what it
knows. All lengths come from clients: nothing is believed that the bytes do not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

VERSION_MAX: Final = 3
OWNED_SINCE: Final = 1
GENERATION_SINCE: Final = 2
RACK_SINCE: Final = 3


class Subscription(NamedTuple):
    """What a consumer wants and has, as it says when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    generation: int = -1
    rack_id: str | None = None


class _Reader:
    """Reads big-endian fields; a field that is not there is a ValueError."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError("the blob ends within a field")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big", signed=True)

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def count(self, least_bytes: int) -> int:
        """The length of an array whose elements have at least so many bytes."""
        count = self.number(4)
        if not 0 <= count <= (len(self._data) - self._at) // least_bytes:
            raise ValueError("an array is longer than its blob")
        return count

    def partitions(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple((self.text(), tuple(self.number(4) for _ in range(self.count(4)))) for _ in range(self.count(6)))


def parse_subscription(metadata: bytes) -> Subscription | None:
    """A member's metadata; None where the bytes are none."""
    reader = _Reader(metadata)
    try:
        version = reader.number(2)
        topics = tuple(reader.text() for _ in range(reader.count(2)))
        _skip_user_data(reader)
        owned = reader.partitions() if version >= OWNED_SINCE else ()
        generation = reader.number(4) if version >= GENERATION_SINCE else -1
        rack = None
        if version >= RACK_SINCE and (length := reader.number(2)) >= 0:
            rack = reader.take(length).decode()
    except ValueError:
        return None
    return Subscription(min(version, VERSION_MAX), topics, owned, generation, rack) if version >= 0 else None


def _skip_user_data(reader: _Reader) -> None:
    if (length := reader.number(4)) >= 0:
        reader.take(length)


def parse_assignment(assignment: bytes) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """A member's assignment; None where the bytes are none. No bytes are an assignment of nothing."""
    if not assignment:
        return ()
    reader = _Reader(assignment)
    try:
        reader.number(2)
        return reader.partitions()
    except ValueError:
        return None


def encode_assignment(version: int, partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    """An assignment for a member that speaks this version."""
    parts = [version.to_bytes(2, "big"), len(partitions).to_bytes(4, "big")]
    for topic in sorted(partitions):
        name, numbers = topic.encode(), partitions[topic]
        parts += [len(name).to_bytes(2, "big"), name, len(numbers).to_bytes(4, "big")]
        parts += [number.to_bytes(4, "big") for number in numbers]
    parts.append((-1).to_bytes(4, "big", signed=True))
    return b"".join(parts)
