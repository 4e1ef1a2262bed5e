"""Finds clients that are gone although the loop did not say so.

uvloop tells once of a socket that has an error, and watches it no longer. Where bytes had arrived before the client
reset the connection, as that of a process that is killed does, that one time brings the bytes and not the error. The
connection would keep its file, and what it has of a request, for all of `connections.max.idle.ms`. So the system is
asked about each connection now and then, a part of them at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

PAUSE_SECONDS: Final = 5.0
PARTS: Final = 4
"""After so many pauses every connection was looked at."""


class Watched(Protocol):
    """A connection whose client may be gone."""

    def look(self) -> None:
        """See whether it is."""


class GoneClients:
    """Looks at connections from `start` to `stop`."""

    __slots__ = ("_at_once", "_connections", "_left", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Collection[Watched]) -> None:
        """`connections` may change at any time."""
        self._loop = loop
        self._connections = connections
        self._left: list[Watched] = []
        self._at_once = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE_SECONDS, self._look)

    def stop(self) -> None:
        self._left.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._look)
        left = self._left
        if not left:
            left.extend(self._connections)
            self._at_once = -(-len(left) // PARTS)
        for _ in range(min(self._at_once, len(left))):
            left.pop().look()
