"""How late the loop is: a timer that is due every second notes by how much it was missed, and how busy the loop was."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

INTERVAL_SECONDS: Final = 1.0
REMEMBERED_SAMPLES: Final = 60


class LoopWatch:
    """Started and stopped on the loop that it watches."""

    __slots__ = ("_cpu", "_due", "_lags", "_timer", "idle_ratio")

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._cpu = 0.0
        self._lags: deque[float] = deque((0.0,), REMEMBERED_SAMPLES)
        self.idle_ratio = 1.0
        """The part of the last second in which the loop's thread did nothing."""

    @property
    def lag_seconds(self) -> float:
        """How late the loop was last."""
        return self._lags[-1]

    @property
    def lag_seconds_max(self) -> float:
        """How late it was at the worst, within a minute."""
        return max(self._lags)

    def start(self) -> None:
        self._cpu = time.thread_time()
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not by the loop's own clock: uvloop's counts whole milliseconds.
        self._due = time.monotonic() + INTERVAL_SECONDS
        self._timer = loop.call_later(INTERVAL_SECONDS, self._sample, loop)

    def _sample(self, loop: asyncio.AbstractEventLoop) -> None:
        cpu, lag = time.thread_time(), max(time.monotonic() - self._due, 0.0)
        self._lags.append(lag)
        self.idle_ratio = min(max(1.0 - (cpu - self._cpu) / (INTERVAL_SECONDS + lag), 0.0), 1.0)
        self._cpu = cpu
        self._schedule(loop)
