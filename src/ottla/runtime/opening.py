"""Opening the logs of many partitions for one request.

A log is opened at first touch, which takes a few calls of the file system; where it is new, its files are made. One
request may be the first to touch thousands of them: a consumer that asks where all partitions of a large topic end. So
where a request needs more than a few, they are opened one per turn of the loop, and it is served after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic, PartitionTable

A = TypeVar("A")

LOGS_INLINE_MAX: Final = 4
"""So many are opened by whoever touches them."""


def unopened(table: PartitionTable, places: Iterable[tuple[str | UUID, int]]) -> list[Partition]:
    """The partitions to open before a request for these places is served; none if they are few."""
    found = []
    for key, index in places:
        topic = table.find(key)
        partition = topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None
        if partition is not None and partition.log_or_none is None:
            found.append(partition)
    return found if len(found) > LOGS_INLINE_MAX else []


def unopened_led(topic: HostedTopic, batches: Iterable[tuple[int, object]]) -> list[Partition]:
    """The partitions of a topic that an append of batches for these indexes would open, however few they are."""
    led = topic.led
    count = len(led)
    return [
        partition
        for index, _ in batches
        if 0 <= index < count and (partition := led[index]) is not None and partition.log_or_none is None
    ]


async def open_in_turns(partitions: Sequence[Partition]) -> None:
    """Open their logs while others are served. Why one does not open is told to whoever touches it next."""
    for partition in partitions:
        if partition.log_or_none is None and not partition.gone:
            with suppress(OttlaError):
                _ = partition.log
            await asyncio.sleep(0)


def opened_first(
    table: PartitionTable, places: Iterable[tuple[str | UUID, int]], make: Callable[[], A]
) -> A | Awaitable[A]:
    """What `make` gives: at once, or when the logs of all these places are open."""
    closed = unopened(table, places)
    return _made(closed, make) if closed else make()


async def _made(closed: Sequence[Partition], make: Callable[[], A]) -> A:
    await open_in_turns(closed)
    return make()
