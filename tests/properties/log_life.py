"""A log that lives: one step after the other, as chance has it, until the power fails in the midst of one."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from tests.unit.log.crash_disk import CrashDisk, PowerCut
from tests.unit.log.support import open_log

DIRECTORY: Final = "/data/orders-3"

Steps: TypeAlias = Sequence[tuple[Callable[[], None], float]]
"""What may happen next, and how often."""


class LogLife(ABC):
    """Whoever inherits knows what may happen to the log, and what must hold."""

    config: TopicConfig
    disk: CrashDisk
    rng: random.Random
    stored_point: int
    """The recovery point as the checkpoint has it, and where the log starts."""
    stored_start: int

    @abstractmethod
    def steps(self) -> Steps: ...

    def _open(self, *, clean: bool) -> PartitionLog:
        return open_log(
            self.disk,
            DIRECTORY,
            clean=clean,
            config=self.config,
            recovery_point=self.stored_point,
            log_start_offset=self.stored_start,
        )

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
