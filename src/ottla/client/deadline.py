"""How long a call may still take, and how long to wait before it tries again."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.settings import ClientSettings


class Deadline:
    """A moment on the monotonic clock by which something must be done."""

    __slots__ = ("_at",)

    def __init__(self, timeout_ms: float) -> None:
        self._at = time.monotonic() + timeout_ms / 1000

    def seconds_left(self) -> float:
        """Never negative."""
        return max(0.0, self._at - time.monotonic())

    def ms_left(self) -> int:
        return int(self.seconds_left() * 1000)

    def passed(self) -> bool:
        return time.monotonic() >= self._at


class Backoff:
    """Waits between attempts: doubling, with a fifth of jitter so that clients do not come back in step."""

    __slots__ = ("_next_ms", "_settings", "attempts", "deadline")

    def __init__(self, settings: ClientSettings, deadline: Deadline | None = None) -> None:
        self._settings = settings
        self._next_ms = float(settings.retry_backoff_ms)
        self.attempts = 0
        self.deadline = deadline or Deadline(settings.api_timeout_ms)

    def wait(self) -> bool:
        """Sleep before the next attempt; False, at once, if no time is left for one."""
        pause = self.next_pause_seconds()
        if pause >= self.deadline.seconds_left():
            return False
        time.sleep(pause)
        return True

    def next_pause_seconds(self) -> float:
        """The pause before the next attempt, for callers that have other things to do meanwhile."""
        self.attempts += 1
        pause_ms = self._next_ms * random.uniform(0.8, 1.2)
        self._next_ms = min(self._next_ms * 2, float(self._settings.retry_backoff_ms_max))
        return pause_ms / 1000

    def reset(self) -> None:
        """Something went well: the next failure starts small again."""
        self.attempts = 0
        self._next_ms = float(self._settings.retry_backoff_ms)
