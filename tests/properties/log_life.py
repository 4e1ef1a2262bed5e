"""A log that lives: one step after the other, as chance has it, until the power fails in the midst of one."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.unit.log.crash_disk import CrashDisk, PowerCut

Steps: TypeAlias = Sequence[tuple[Callable[[], None], float]]
"""What may happen next, and how often."""


class LogLife(ABC):
    """Whoever inherits knows what may happen to the log, and what must hold."""

    disk: CrashDisk
    rng: random.Random

    @abstractmethod
    def steps(self) -> Steps: ...

    def step(self) -> None:
        steps = self.steps()
        self.rng.choices([step for step, _ in steps], weights=[weight for _, weight in steps])[0]()

    def live(self, changes: int) -> None:
        """Until the power fails, after so many changes of the disk, in the midst of whatever it is."""
        self.disk.changes_left = changes
        try:
            while True:
                self.step()
        except PowerCut:
            pass
        self.disk.changes_left = None
