"""The end of a segment that is written to, as its readers want it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

TAIL_BATCHES_MAX: Final = 64


class Tail:
    """Where the last few batches are, so that a consumer at the end of the log costs no lookup."""

    __slots__ = ("last_offsets", "positions", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        """The offset from which on the tail knows every batch."""
        self.last_offsets = array("q")
        self.positions = array("q")

    def trim(self) -> None:
        """Forget the older half."""
        half = len(self.positions) // 2
        self.begin_at(self.last_offsets[half - 1] + 1)
        del self.last_offsets[:half]
        del self.positions[:half]

    def begin_at(self, offset: int) -> None:
        """Know nothing before `offset`: the log begins there now, or there are too many batches."""
        self.start = max(self.start, offset)

    def position_of(self, offset: int, end: int) -> int:
        """Where the first batch that reaches `offset` begins; `end` if none does."""
        found = bisect_left(self.last_offsets, offset)
        return self.positions[found] if found < len(self.positions) else end
