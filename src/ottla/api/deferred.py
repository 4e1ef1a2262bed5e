"""An answer that comes later, without the cost of a task.

A handler that cannot answer at once (a fetch that waits for data, a produce that waits for replicas) returns a
`Deferred`. The connection keeps it in its queue of owed answers, so order is fixed when the request arrives and
completion may come in any order. Completing it runs the connection's listener at once, on the loop, with no hop in
between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ottla.model.chunks import Chunks


class Deferred:
    """One answer that is owed. Completed once or cancelled once; whatever comes after that is ignored."""

    __slots__ = ("_listener", "_on_cancel", "cancelled", "chunks", "done", "is_behind", "weight")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self.chunks: Chunks = []
        self.done = False
        self.cancelled = False
        self.is_behind = False
        """Whether some older answers were owed on its connection when it joined them."""
        self.weight = 1
        """How many usual answers it counts as, while it is owed."""
        self._listener: Callable[[], None] | None = None
        self._on_cancel = on_cancel

    def complete(self, chunks: Chunks) -> None:
        """Hand in the answer; empty chunks mean that nothing is sent (acks=0)."""
        if self.done or self.cancelled:
            return
        self.chunks = chunks
        self.done = True
        self._on_cancel = None
        if self._listener is not None:
            self._listener()

    def cancel(self) -> None:
        """The connection is gone: let go of what the answer waits for."""
        if self.done or self.cancelled:
            return
        self.cancelled = True
        self._listener = None
        if self._on_cancel is not None:
            self._on_cancel()
            self._on_cancel = None

    def listen(self, listener: Callable[[], None]) -> None:
        """Called once by the connection; runs at once if the answer is already there."""
        self._listener = listener
        if self.done:
            listener()


class Alone:
    """An answer to wait for, to a request that has not been served yet: its connection's next ones stay behind it."""

    __slots__ = ("_work",)

    def __init__(self, work: Awaitable[Chunks]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, Chunks]:
        return self._work.__await__()


async def settled(answer: Chunks | Deferred) -> Chunks:
    """The answer, when it is there; for who waits for it in place of a connection."""
    if not isinstance(answer, Deferred):
        return answer
    done = asyncio.Event()
    answer.listen(done.set)
    await done.wait()
    return answer.chunks
