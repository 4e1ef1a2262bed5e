"""What clients did, kept for the checker; written to by many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from simulator.history import History, Outcome, Place, Send, Transaction

SECOND_US: Final = 1_000_000


class Clock:
    """Microseconds since the run began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def now_us(self) -> int:
        return int((time.monotonic() - self._began) * SECOND_US)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


class Gap(NamedTuple):
    """A time without an acknowledgement."""

    seconds: float
    began: float


class Recording(History):
    """A history that threads share, and the gaps between acknowledgements in it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.copied_from: dict[int, tuple[Place, int]] = {}
        """Values that copy a record, and where that is."""
        self.copied_to: dict[Place, int] = {}
        """Up to where a group has copied by its committed offsets, once all is over."""
        self.failures: dict[str, int] = {}
        """Why sends failed, and how often."""
        self._acknowledged_at: dict[Place, list[float]] = {}
        self._lock = threading.Lock()

    def send(self, place: Place, producer: str, order: int, transaction: Transaction | None = None) -> Send:
        with self._lock:
            return super().send(place, producer, order, transaction)

    def begin(self, transactional_id: str) -> Transaction:
        with self._lock:
            return super().begin(transactional_id)

    def settle(self, send: Send, outcome: Outcome, offset: int = -1) -> None:
        with self._lock:
            super().settle(send, outcome, offset)
            if outcome is Outcome.OK:
                self._acknowledged_at.setdefault(send.place, []).append(self.clock.seconds)

    def failed(self, reason: str) -> None:
        with self._lock:
            self.failures[reason] = self.failures.get(reason, 0) + 1

    def longest_gap(self, places: Iterable[Place], since: float = 0.0) -> Gap:
        """The longest time without an acknowledgement of a partition that ended after `since`, or has not ended.

        Each partition counts by itself: what others get acknowledged meanwhile is no comfort to who waits.
        """
        with self._lock:
            times = [[*self._acknowledged_at.get(place, ()), self.clock.seconds] for place in places]
        gaps = (Gap(after - before, before) for row in times for before, after in pairwise(row) if after >= since)
        return max(gaps, default=Gap(0.0, since))
