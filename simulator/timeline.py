"""Virtual time: one heap of events, in the order of their time, then of their making.

Theory of operation. Nothing happens between two events, so the clock jumps from one to the next and a quiet hour costs
nothing. Time is whole microseconds: sums of floats differ with their order, and a replay must not.

What an editor must keep true: every event goes through this heap, and whatever two events could disagree about is
decided by their numbers. An event may be dropped only by its own `fire`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from struct import Struct
from typing import Final, Protocol

SECOND_US: Final = 1_000_000
NOTED_BYTES_MAX: Final = 1 << 16
_MARK: Final = Struct("<qI")


class Event(Protocol):
    """What happens at a time."""

    def fire(self) -> None: ...


class Timeline:
    """The clock of a run, what is still to come, and a digest of what has been."""

    __slots__ = ("_digest", "_heap", "_noted", "_sequence", "events", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        """How many have happened, callbacks of the nodes' loops included."""
        self._heap: list[tuple[int, int, Event]] = []
        self._sequence = 0
        self._digest = hashlib.blake2b(digest_size=8)
        self._noted = bytearray()
        """What goes into the digest next: many small pieces cost more one by one."""

    def at(self, when_us: int, event: Event) -> None:
        """Let it happen then, or now if that is past."""
        self._sequence += 1
        heappush(self._heap, (when_us if when_us > self.now_us else self.now_us, self._sequence, event))

    def after(self, delay_us: int, event: Event) -> None:
        self._sequence += 1
        heappush(self._heap, (self.now_us + delay_us, self._sequence, event))

    def run(self, until_us: int) -> None:
        """Let everything happen up to that time, and stand there."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            when_us, _, event = heappop(heap)
            self.now_us = when_us
            event.fire()
        self.now_us = max(self.now_us, until_us)

    def step(self) -> bool:
        """The next event; False if there is none."""
        if not self._heap:
            return False
        self.now_us, _, event = heappop(self._heap)
        event.fire()
        return True

    def note(self, kind: int, data: bytes | bytearray | memoryview = b"") -> None:
        """Take something that happened into the digest."""
        noted = self._noted
        noted += _MARK.pack(self.now_us, kind)
        noted += data
        if len(noted) > NOTED_BYTES_MAX:
            self._digest.update(noted)
            noted.clear()

    def digest(self) -> str:
        """Two runs that did the same have the same."""
        self._digest.update(self._noted)
        self._noted.clear()
        return self._digest.hexdigest()


class Call:
    """An event that calls a function, on nobody's loop."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def fire(self) -> None:
        self._function()
