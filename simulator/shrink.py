"""Smaller runs that fail the same way: faults are taken out, then the cluster gets fewer clients and a shorter life.

Faults are independent of one another (see `faults`), so this is delta debugging on a list. A run counts as the same
failure if its first finding breaks the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from simulator.cluster_run import ClusterRun, RunResult
from simulator.faults import Fault
from simulator.options import Options

RUNS_MAX: Final = 80


class Shrinking:
    """Looks for a smaller failing run; `best` is the smallest so far."""

    def __init__(self, failed: RunResult, *, runs_max: int = RUNS_MAX) -> None:
        self.best = failed
        self.runs = 0
        self._runs_max = runs_max
        self._rule = failed.findings[0].rule

    def shrink(self) -> RunResult:
        self._without_faults()
        for options in self._smaller_options():
            self._try(options, [fault for fault in self.best.faults if fault.node < options.machines])
        self._without_faults()
        return self.best

    def _without_faults(self) -> None:
        size = max(len(self.best.faults) // 2, 1)
        while size >= 1 and self.runs < self._runs_max:
            position, shrunk = 0, False
            while position < len(self.best.faults) and self.runs < self._runs_max:
                faults = self.best.faults
                if self._try(self.best.options, faults[:position] + faults[position + size :]):
                    shrunk = True
                else:
                    position += size
            if not shrunk or size > len(self.best.faults):
                size //= 2

    def _smaller_options(self) -> Iterator[Options]:
        """One change at a time, each to what is the best then."""
        last_s = max((fault.at_us for fault in self.best.faults), default=0) // 1_000_000 + 5
        if last_s < self.best.options.seconds:
            yield replace(self.best.options, seconds=last_s)
        for name in ("transactional_producers", "group_members", "readers", "producers", "partitions"):
            while getattr(self.best.options, name, 0) > 1:
                before = self.best.options
                yield replace(before, **{name: getattr(before, name) - 1})
                if self.best.options is before:
                    break

    def _try(self, options: Options, faults: list[Fault]) -> bool:
        if self.runs >= self._runs_max:
            return False
        self.runs += 1
        result = ClusterRun(self.best.seed, options, faults).run()
        if result.findings and result.findings[0].rule == self._rule:
            self.best = result
            return True
        return False
