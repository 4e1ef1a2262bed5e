"""A deliberate bug: how it is put in, taken out, and looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ottla.api.produce_ahead import ProduceGroup
from ottla.server import frame_serving
from simulator.cluster_run import ClusterRun, RunResult
from simulator.faults import plan
from simulator.options import Options, draw

PLAIN: Final[dict[str, Any]] = {
    "classic_members": 0,
    "compacts": False,
    "seconds_between_changes": 0.0,
    "sessionless_readers": 0,
    "spare_broker": False,
}
"""What most bugs have nothing to do with, and what runs are shorter without."""


class Patches:
    """Changes to classes and modules that are taken back at the end."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace an attribute that must be there: a bug that misses its place proves nothing."""
        before = owner.__dict__[name]
        self._before.append((owner, name, before))
        setattr(owner, name, replacement)

    def take_back(self) -> None:
        for owner, name, before in reversed(self._before):
            setattr(owner, name, before)
        self._before.clear()


@dataclass(frozen=True, slots=True)
class Bug:
    """What is broken on purpose."""

    name: str
    breaks: str
    seeds_max: int
    put_in: Callable[[Patches], None]
    options: dict[str, Any] = field(default_factory=dict)
    """What the runs must be like for the bug to matter."""

    @contextmanager
    def present(self) -> Iterator[None]:
        patches = Patches()
        # What is compiled cannot be broken this way; the interpreted code that does the same can.
        patches.put(frame_serving, "ProduceGroup", ProduceGroup)
        self.put_in(patches)
        try:
            yield
        finally:
            patches.take_back()

    def run(self, seed: int) -> RunResult:
        """One run with the bug in it."""
        options: Options = replace(draw(seed), **{**PLAIN, **self.options})
        with self.present():
            return ClusterRun(seed, options, plan(seed, options)).run()

    def hunt(self) -> RunResult | None:
        """The first run that finds it, None if none does in time."""
        for seed in range(self.seeds_max):
            result = self.run(seed)
            if result.findings:
                return result
        return None
