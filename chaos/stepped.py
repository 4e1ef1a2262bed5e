"""`python -m chaos.stepped FILE serve ...` is `ottla serve ...` with a wall clock that can be set while it runs.

FILE is a `clock_file`. Monotonic time goes on as the machine's, as it does where somebody sets a machine's clock; to
set that one itself would take rights over it.
"""

from __future__ import annotations

import mmap
import sys
from functools import partial
from pathlib import Path

import ottla.broker
from chaos.clock_file import SHIFT
from ottla.cli import main
from ottla.runtime.world import SystemClock


class SteppedClock(SystemClock):
    """The machine's clock and what a file says."""

    __slots__ = ("_shift",)

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), SHIFT.size)

    def now_ms(self) -> int:
        shift_ms: int = SHIFT.unpack(self._shift)[0]
        return super().now_ms() + shift_ms


if __name__ == "__main__":
    vars(ottla.broker)["SystemClock"] = partial(SteppedClock, sys.argv.pop(1))
    main()
