"""Where `ottla consume --from` starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from ottla.cli.durations import moment_ms
from ottla.cli.failures import UsageError
from ottla.client.cluster import Cluster
from ottla.client.consumer import AtTime
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.model.ids import TopicPartition

OFFSET_MAX: Final = 2**63 - 1
_AGES: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE: Final = re.compile(r"([0-9]+)([smhd])")


class FromEnd(NamedTuple):
    """The last records of each partition."""

    records: int


class FromOffset(NamedTuple):
    """The same offset in each partition, or the nearest one that it holds."""

    offset: int


class Edge(NamedTuple):
    """The beginning (EARLIEST) or the end (LATEST)."""

    which: int


Start = Edge | FromOffset | FromEnd | AtTime


def parse_start(text: str, now_ms: int) -> Start:
    """`beginning`, `end`, an offset, -N, @MILLISECONDS, an ISO date, or an age such as 15m."""
    plain = text.strip()
    if plain in ("beginning", "earliest", "start"):
        return Edge(EARLIEST)
    if plain in ("end", "latest"):
        return Edge(LATEST)
    if plain.isdecimal():
        return FromOffset(_bounded(plain))
    if plain.startswith("-") and plain[1:].isdecimal():
        return FromEnd(_bounded(plain[1:]))
    if plain.startswith("@") and plain[1:].isdecimal():
        return AtTime(_bounded(plain[1:]))
    if age := _AGE.fullmatch(plain):
        return AtTime(max(now_ms - int(age[1]) * _AGES[age[2]] * 1000, 0))
    return AtTime(_iso_ms(plain))


def resolve_start(
    cluster: Cluster, start: Start, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int | AtTime], list[str]]:
    """A start for each partition, and a remark for each one whose log does not reach that far."""
    if isinstance(start, AtTime):
        return dict.fromkeys(partitions, start), []
    if isinstance(start, Edge):
        return dict.fromkeys(partitions, start.which), []
    firsts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    starts: dict[TopicPartition, int | AtTime] = {}
    remarks: list[str] = []
    for partition in partitions:
        first, end = firsts[partition].offset, ends[partition].offset
        wanted = start.offset if isinstance(start, FromOffset) else max(end - start.records, first)
        starts[partition] = nearest = min(max(wanted, first), end)
        if nearest != wanted:
            remarks.append(f"{partition} holds offsets {first} to {end}: starting at {nearest}, not at {wanted}")
    return starts, remarks


def _bounded(digits: str) -> int:
    number = int(digits) if len(digits) < 20 else OFFSET_MAX + 1
    if number > OFFSET_MAX:
        raise UsageError(f"--from {digits}: the number is too large")
    return number


def _iso_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--from {text!r}: write beginning, end, an offset, -N for the last N, an ISO time such as "
            f"2026-01-31T12:00:00, @ and milliseconds, or an age such as 15m"
        ) from None
    return moment_ms(moment)
