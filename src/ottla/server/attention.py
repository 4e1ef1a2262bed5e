"""Staying awake for a moment after a request, because the next one is often close behind.

A loop with nothing to do blocks, and its processor goes to sleep. Waking it takes longer than most requests: on a
virtual machine some 50 us, several times what serving one costs. So for a moment after each request the loop looks
for the next one without blocking. The moment is short, only short requests with short answers bring it about (large
ones keep a client busy for longer than it takes to wake), and with no traffic nothing spins.

The same callback is where a turn of the loop ends: it runs when everything that was readable has been read.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

AWAKE_SECONDS: Final = 60e-6
"""About what it takes to fall asleep and wake up again; beyond that sleeping is cheaper."""


class Turn(Protocol):
    """What waits for the end of a turn of the loop."""

    def end(self) -> None: ...


class Attention:
    """Keeps one loop from blocking until a moment after the last `touch`."""

    __slots__ = ("_loop", "_spinning", "_until", "touched", "turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.turn: Turn | None = None
        self._loop = loop
        self._until = 0.0
        self._spinning = False
        self.touched = False
        """Whether a request was served since the loop last looked."""

    @property
    def is_awake(self) -> bool:
        return self._spinning

    def touch(self) -> None:
        """A request was served. Who finds `touched` set need not call."""
        self.touched = True
        if not self._spinning:
            self._spinning = True
            self._loop.call_soon(self._spin)

    def _spin(self) -> None:
        try:
            if self.turn is not None:
                self.turn.end()
        finally:
            # A callback that is ready makes the loop look at its sockets without waiting for them.
            now = time.perf_counter()
            if self.touched:
                self.touched = False
                self._until = now + AWAKE_SECONDS
            if now < self._until:
                self._loop.call_soon(self._spin)
            else:
                self._spinning = False
