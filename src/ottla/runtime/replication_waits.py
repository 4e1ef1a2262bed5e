"""Those who wait until what they appended is on every in-sync replica.

Theory of operation. One queue per partition, in the order of appends, and one timer for all of it. When the high
watermark moves, whoever it has passed is told in one go: no task, no future and no timer per request. The timer is
set for the earliest deadline that was seen when it was set, so it goes off rarely and mostly in vain.

Producers under load write again as soon as they are answered, so after a movement of the high watermark as many are
expected to wait as did before (`expects_more`): a fetch of a follower that brings what all of them write costs hardly
more than one that brings what the first of them writes. Of a producer that has as many requests on the way as it may
that is expected at once: what it has to write waits anyway. Of others it is only when they have come back for some
movements in a row. Whoever does not come back in time is not expected for a while, and each time for longer.

What an editor must keep true: everybody in the queue is told exactly once, by `release`, by `fail` or by the timer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol, TypeAlias

from ottla.model.errors import ApiError, ErrorCode

COME_BACK_SECONDS: Final = 0.004
"""How long after a movement somebody is expected; the clock of a loop may count milliseconds only."""
CROWDED_SECONDS: Final = 0.008
"""The same where a producer has as many requests on the way as it may."""
EXPECTED_MAX: Final = 64
"""So many are worth a fetch, whoever is missing."""
REGULAR_SINCE: Final = 4
"""After so many movements those are expected who send one request at a time."""
PAUSE_MOVEMENTS_MAX: Final = 64
"""For one movement nobody is expected when an expectation was wrong, for twice as many when the next one was, too."""


class Waiter(Protocol):
    """Somebody who wants an append replicated. Told once, on the loop."""

    @property
    def is_behind(self) -> bool:
        """Whether its client has asked for some others before, and not waited for the answers."""

    def replicated(self) -> None:
        """Every in-sync replica has it."""

    def not_replicated(self, error: ApiError) -> None:
        """It is in the leader's log, but whether it stays is not known."""


_Waiting: TypeAlias = tuple[int, float, Waiter]
"""The end offset that is waited for, how long, and by whom."""


class ReplicationWaits:
    """The queue of one partition."""

    __slots__ = (
        "_expected",
        "_have_come_back",
        "_is_pipelined",
        "_loop",
        "_pause",
        "_queue",
        "_regularity",
        "_released_at",
        "_timer",
        "_timer_at",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._released_at = 0.0
        self._expected = 0
        """How many waited when the high watermark passed somebody last."""
        self._have_come_back = False
        """Whether, soon after that, as many were waiting again."""
        self._is_pipelined = False
        """Whether one of those who were passed stood behind others of the same client."""
        self._regularity = 0
        """For how many movements in a row they have; below zero while nobody is expected."""
        self._pause = 1
        """For how many movements nobody is, when the next expectation is wrong."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, end_offset: int, timeout_ms: int, waiter: Waiter) -> None:
        now = self._loop.time()
        deadline = now + timeout_ms / 1000
        self._queue.append((end_offset, deadline, waiter))
        if len(self._queue) == self._expected and now - self._released_at <= self._come_back_seconds:
            self._have_come_back = True
        if self._timer is None or deadline < self._timer_at:
            self._arm(deadline)

    def release(self, high_watermark: int) -> None:
        """Tell those whose appends are below the high watermark."""
        queue = self._queue
        if not queue or queue[0][0] > high_watermark:
            return
        self._note_movement(len(queue))
        while queue and queue[0][0] <= high_watermark:
            waiter = queue.popleft()[2]
            if waiter.is_behind:
                self._is_pipelined = True
            waiter.replicated()

    def _note_movement(self, waiting: int) -> None:
        """Judge what was expected since the last movement, and begin anew."""
        if self._expected <= 1:
            self._regularity = min(self._regularity + 1, 0)  # That one comes back says nothing about others.
        elif self._have_come_back:
            self._regularity = max(self._regularity, 0) + 1
            self._pause = 1
        elif self._regularity > 0 or self._counts_on_producers:
            self._regularity = -self._pause
            self._pause = min(2 * self._pause, PAUSE_MOVEMENTS_MAX)
        else:
            self._regularity = min(self._regularity + 1, 0)
        self._expected, self._released_at = waiting, self._loop.time()
        self._have_come_back = self._is_pipelined = False

    @property
    def _counts_on_producers(self) -> bool:
        return self._regularity >= (0 if self._is_pipelined else REGULAR_SINCE)

    @property
    def _come_back_seconds(self) -> float:
        return CROWDED_SECONDS if self._is_pipelined else COME_BACK_SECONDS

    def expects_more(self, offset: int) -> float:
        """For how many seconds others are likely to join those who are beyond `offset`; 0 if they are not."""
        left = self._released_at + self._come_back_seconds - self._loop.time()
        if left <= 0 or not self._counts_on_producers:
            return 0
        beyond, expected = 0, min(self._expected, EXPECTED_MAX)
        for end_offset, _, _ in reversed(self._queue):
            if end_offset <= offset:
                break
            beyond += 1
            if beyond >= expected:
                return 0
        return left if beyond else 0

    def fail(self, error: ApiError) -> None:
        """Tell everybody that it was in vain."""
        queue, self._queue = self._queue, deque()
        self._regularity = 0
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

    is_behind: Final = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()

    def replicated(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def not_replicated(self, error: ApiError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
