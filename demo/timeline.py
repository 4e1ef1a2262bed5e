"""What was measured, and when. Times are seconds since the demo began; everything here may be called by any thread."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import Final

Place = tuple[str, int]
"""A topic and one of its partitions."""

SAMPLES_PER_SECOND_MAX: Final = 2_000


class Timeline:
    """Counts and latencies by the second, and what happened."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.written: Counter[int] = Counter()
        self.results: Counter[int] = Counter()
        self.written_total = self.results_total = 0
        self.latencies_ms: defaultdict[int, list[float]] = defaultdict(list)
        """From the event to its result, by the second in which that was seen."""
        self.write_ms: defaultdict[int, list[float]] = defaultdict(list)
        self.batches: list[tuple[int, int]] = []
        """Rows and milliseconds of each batch of the Spark job."""
        self.marks: dict[str, float] = {}
        self.result_pause_seconds = 0.0
        self.last_result = 0.0

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def mark(self, name: str) -> float:
        """Something happened now."""
        self.marks[name] = self.now
        return self.marks[name]

    def acknowledged(self, at: float, latency_ms: float) -> None:
        second = int(at)
        with self._lock:
            self.written[second] += 1
            self.written_total += 1
            if len(self.write_ms[second]) < SAMPLES_PER_SECOND_MAX:
                self.write_ms[second].append(latency_ms)

    def results_seen(self, at: float, count: int, latencies_ms: list[float]) -> None:
        second = int(at)
        with self._lock:
            self.results[second] += count
            self.results_total += count
            room = SAMPLES_PER_SECOND_MAX - len(self.latencies_ms[second])
            self.latencies_ms[second] += latencies_ms[: max(0, room)]
            if self.last_result:
                self.result_pause_seconds = max(self.result_pause_seconds, at - self.last_result)
            self.last_result = at

    def batch_done(self, rows: int, batch_ms: int) -> None:
        if rows:
            self.batches.append((rows, batch_ms))

    def rate(self, counts: Counter[int], seconds: int = 3) -> float:
        """Events per second over the last whole seconds."""
        last = int(self.now)
        return sum(counts[second] for second in range(last - seconds, last)) / seconds

    @property
    def lag(self) -> int:
        """Events that were written and have no result yet. One too many does not make up for one that is missing."""
        return max(0, self.written_total - self.results_total)

    def lags(self) -> list[tuple[int, int]]:
        """The same at the end of each second."""
        lag, found = 0, []
        for second in range(int(self.now) + 1):
            lag += self.written[second] - self.results[second]
            found.append((second + 1, max(0, lag)))
        return found


class Failover:
    """How long partitions were without acknowledgement because their leader had died.

    That is the longest gap between two acknowledgements of a partition, or from the kill to the first one after it.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._last: dict[Place, float] = {}
        self._gaps: dict[Place, float] = {}
        self._struck_at: float | None = None
        self._lock = threading.Lock()

    def struck(self, places: list[Place]) -> None:
        """The leader of these is killed now."""
        with self._lock:
            self._struck_at = self._timeline.now
            self._gaps = dict.fromkeys(places, 0.0)

    def over(self) -> float:
        """The broker comes back: the longest time so far is the answer."""
        with self._lock:
            self._struck_at = None
            return max(self._gaps.values(), default=0.0)

    def acknowledged(self, place: Place, at: float) -> None:
        with self._lock:
            if self._struck_at is not None and place in self._gaps:
                since = max(self._last.get(place, 0.0), self._struck_at)
                self._gaps[place] = max(self._gaps[place], at - since)
            self._last[place] = at

    def is_fed(self, place: Place) -> bool:
        """Whether anything was ever written there, by those who tell this."""
        with self._lock:
            return place in self._last

    def acknowledged_since(self, places: list[Place], at: float) -> bool:
        """Whether each of these has had an acknowledgement after that time."""
        with self._lock:
            return all(self._last.get(place, 0.0) > at for place in places)


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them lies; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
