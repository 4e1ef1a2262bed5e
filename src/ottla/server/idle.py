"""Closes connections on which nothing has happened for too long, with one timer for all of them.

A wheel of buckets turns by one at each tick. A connection sits in the bucket of the tick at which it would expire if
nothing happened, and notes the tick at each sign of life. When its bucket comes up it is closed, or moved to where
its last sign of life says. So each connection is looked at about once per idle time, however busy it is.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICKS_PER_IDLE_TIME: Final = 32
TICK_SECONDS_MIN: Final = 0.01


class Idler(Protocol):
    """What can be idle. It sets `active_tick` to the wheel's `tick` whenever something happens on it."""

    active_tick: int
    idle_bucket: int

    def close_idle(self) -> None: ...


class IdleWheel:
    """All connections of a loop, by when they would expire."""

    __slots__ = ("_buckets", "_loop", "_tick_seconds", "_timer", "tick")

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_ms_max: int) -> None:
        """A negative idle time means that nothing ever expires."""
        self._loop = loop
        self._tick_seconds = 0.0
        if idle_ms_max >= 0:
            self._tick_seconds = max(idle_ms_max / 1000 / TICKS_PER_IDLE_TIME, TICK_SECONDS_MIN)
        self._buckets: list[set[Idler]] = [set() for _ in range(TICKS_PER_IDLE_TIME + 2)]
        self._timer: asyncio.TimerHandle | None = None
        self.tick = 0

    def add(self, idler: Idler) -> None:
        idler.active_tick = self.tick
        self._put(idler)
        if self._timer is None and self._tick_seconds:
            self._timer = self._loop.call_later(self._tick_seconds, self._turn)

    def remove(self, idler: Idler) -> None:
        self._buckets[idler.idle_bucket].discard(idler)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _put(self, idler: Idler) -> None:
        # One tick more than the idle time: the tick it was last active in had partly passed.
        idler.idle_bucket = (idler.active_tick + TICKS_PER_IDLE_TIME + 1) % len(self._buckets)
        self._buckets[idler.idle_bucket].add(idler)

    def _turn(self) -> None:
        self._timer = self._loop.call_later(self._tick_seconds, self._turn)
        self.tick += 1
        index = self.tick % len(self._buckets)
        due, self._buckets[index] = self._buckets[index], set()
        for idler in due:
            if self.tick - idler.active_tick > TICKS_PER_IDLE_TIME:
                idler.close_idle()
            else:
                self._put(idler)
