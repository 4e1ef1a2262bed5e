"""Deadlines of a state machine, by name. Nothing here knows the time; it is handed in.

A heap with entries that are outdated rather than removed: setting a timer anew or cancelling it costs no search.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

OUTDATED_MIN: Final = 64
"""Outdated entries are swept out when there are more of them than this, and more than of the others."""


class Timers(Generic[KeyT]):
    """Each key has at most one deadline."""

    __slots__ = ("_deadlines", "_heap", "_number")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._number = 0

    def __contains__(self, key: KeyT) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: KeyT, deadline_ms: int) -> None:
        """From now on `key` is due at this time and at no other."""
        self._number += 1
        self._deadlines[key] = (deadline_ms, self._number)
        heappush(self._heap, (deadline_ms, self._number, key))
        if len(self._heap) > 2 * len(self._deadlines) + OUTDATED_MIN:
            self._heap = [(due, number, key) for key, (due, number) in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: KeyT) -> None:
        self._deadlines.pop(key, None)

    def due(self, now_ms: int) -> list[KeyT]:
        """The keys whose time has come, oldest deadline first; they have no deadline any more."""
        keys = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, number, key = heappop(self._heap)
            if self._deadlines.get(key) == (deadline_ms, number):
                del self._deadlines[key]
                keys.append(key)
        return keys

    def pop_due(self, now_ms: int) -> KeyT | None:
        """The key whose time came first, or None where nothing is due; it has no deadline any more."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._deadlines[key]
        return key

    def next_deadline_ms(self) -> int | None:
        """When there is something due next."""
        while self._heap:
            deadline_ms, number, key = self._heap[0]
            if self._deadlines.get(key) == (deadline_ms, number):
                return deadline_ms
            heappop(self._heap)
        return None
