"""The epoch and the vote on their way to disk, and who waits for them: nothing leaves a node before they are there.

One write is under way at a time, of the newest state; states that came and went in the meantime are never written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.core.quorum.effects import ElectionState, StoreState


class StateStore:
    """What is wanted on disk, and what is there."""

    __slots__ = ("_on_stored", "_store", "_stored_version", "_waiters", "_wanted", "has_given_up", "is_busy")

    def __init__(self, store: Callable[[ElectionState], Awaitable[None]], on_stored: Callable[[int], None]) -> None:
        """`store` returns when a state is on disk; `on_stored` is told its version, before anybody who waits for it."""
        self._store = store
        self._on_stored = on_stored
        self._wanted: StoreState | None = None
        self._stored_version = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.is_busy = self.has_given_up = False

    def want(self, effect: StoreState) -> bool:
        """True if nobody writes now: then the caller starts `write`."""
        self._wanted = effect
        if self.is_busy:
            return False
        self.is_busy = True
        return True

    async def write(self) -> None:
        """Write until what is wanted is there."""
        try:
            while self._wanted is not None and self._stored_version < self._wanted.version:
                wanted = self._wanted
                await self._store(wanted.state)
                self._stored_version = wanted.version
                self._on_stored(wanted.version)
                self._release(self._stored_version)
        finally:
            self.is_busy = False

    async def reached(self, version: int) -> None:
        """Return when that version, or a later one, is on disk; or after `give_up`, which the caller must look for."""
        if self._stored_version < version and not self.has_given_up:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((version, waiter))
            await waiter

    def give_up(self) -> None:
        """Nothing will be written any more."""
        self.has_given_up = True
        self._release(None)

    def _release(self, version: int | None) -> None:
        ready = [waiter for wanted, waiter in self._waiters if version is None or wanted <= version]
        self._waiters = [item for item in self._waiters if version is not None and item[0] > version]
        for waiter in ready:
            if not waiter.done():
                waiter.set_result(None)
