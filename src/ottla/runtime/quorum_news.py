"""Who waits at a leader for something new: the fetches of its followers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class News:
    """Wakes everybody who waits; each looks for itself whether there is something for it."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    async def wait_while(self, condition: Callable[[], bool], wait_ms: int) -> None:
        """Return when the condition does not hold any more, which is looked at when told; or after a time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(wait_ms, 0) / 1000
        while condition() and loop.time() < deadline:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters[waiter] = None
            timer = loop.call_at(deadline, _wake, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiters.pop(waiter, None)

    def tell(self) -> None:
        """Something has changed."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            _wake(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
