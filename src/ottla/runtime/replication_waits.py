"""Those who wait until what they appended is on every in-sync replica.

Theory of operation. One queue per partition, in the order of appends, and one timer for all of it. When the high
watermark moves, whoever it has passed is told in one go: no task, no future and no timer per request. The timer is
set for the earliest deadline that was seen when it was set, so it goes off rarely and mostly in vain.

What an editor must keep true: everybody in the queue is told exactly once, by `release`, by `fail` or by the timer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, TypeAlias

from ottla.model.errors import ApiError, ErrorCode


class Waiter(Protocol):
    """Somebody who wants an append replicated. Told once, on the loop."""

    def replicated(self) -> None:
        """Every in-sync replica has it."""

    def not_replicated(self, error: ApiError) -> None:
        """It is in the leader's log, but whether it stays is not known."""


_Waiting: TypeAlias = tuple[int, float, Waiter]
"""The end offset that is waited for, how long, and by whom."""


class ReplicationWaits:
    """The queue of one partition."""

    __slots__ = ("_loop", "_queue", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, end_offset: int, timeout_ms: int, waiter: Waiter) -> None:
        deadline = self._loop.time() + timeout_ms / 1000
        self._queue.append((end_offset, deadline, waiter))
        if self._timer is None or deadline < self._timer_at:
            self._arm(deadline)

    def release(self, high_watermark: int) -> None:
        """Tell those whose appends are below the high watermark."""
        queue = self._queue
        while queue and queue[0][0] <= high_watermark:
            queue.popleft()[2].replicated()

    def fail(self, error: ApiError) -> None:
        """Tell everybody that it was in vain."""
        queue, self._queue = self._queue, deque()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, _, waiter in queue:
            waiter.not_replicated(error)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)
        self._timer_at = deadline

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        late = [waiter for _, deadline, waiter in self._queue if deadline <= now]
        if late:
            self._queue = deque(waiting for waiting in self._queue if waiting[1] > now)
        if self._queue:
            self._arm(min(deadline for _, deadline, _ in self._queue))
        error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "not all in-sync replicas have it yet; it may still be committed")
        for waiter in late:
            waiter.not_replicated(error)


class ReplicationFuture:
    """A waiter that can be awaited."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()

    def replicated(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def not_replicated(self, error: ApiError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
