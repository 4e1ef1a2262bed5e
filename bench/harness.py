"""What a section measures with: turns, samples, brokers that stay up, topics, load.

Theory of operation. The two systems take turns (A B A B A B), so that what slowly changes on the machine, such as
heat, hits both. For sections that load a broker both brokers are up and warm together, and only one of them is loaded
at a time. Before each sample the page cache is full (`page_cache`). A sample that fails is a reason on the page, and
the measure is not tried again on that system. A sample during which processes that are not ours were busy is taken
again, a bounded number of times in a run.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import processes, topics
from bench.errors import NotMeasured, ToolMissing
from bench.page_cache import PageCache
from bench.processes import Neighbours
from bench.results import Measure, Results, Sample, number
from bench.systems import Broker, System
from bench.tools import Tools

ROUNDS = 3
REPEATS_MAX = 10
LOAD_TIMEOUT_S = 120
ROOT = Path(__file__).resolve().parent.parent


def observed(take: Callable[[], Mapping[str, float]]) -> tuple[Mapping[str, float], float]:
    """Figures, and how much of a core processes that are not ours used meanwhile."""
    neighbours = Neighbours()
    figures = take()
    return figures, neighbours.percent()


@dataclass(slots=True)
class Harness:
    """One run."""

    tools: Tools
    systems: list[System]
    work: Path
    """Where brokers keep their data; goes at the end."""
    quick: bool = False
    limit_s: float = 3600
    """After so long nothing new is begun."""
    results: Results = field(default_factory=Results)
    _brokers: dict[str, Broker] = field(default_factory=dict)
    _names: int = 0
    _repeats_left: int = REPEATS_MAX
    _began: float = field(default_factory=time.monotonic)
    _page_cache: PageCache = field(init=False)

    def __post_init__(self) -> None:
        self._page_cache = PageCache(self.work)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:5.0f} s] {text}", file=sys.stderr, flush=True)

    def scaled(self, full: int, quick: int) -> int:
        """A length or a time of load: the full one, or that of a quick run."""
        return quick if self.quick else full

    def turns(self) -> Iterator[System]:
        """A B A B A B; a quick run has one round."""
        for _ in range(1 if self.quick else ROUNDS):
            yield from self.systems

    def warm(self, take: Callable[[], object]) -> None:
        """Do it once and look away: a JIT has then seen what is measured next. A failure comes up again there."""
        if not self._time_is_up():
            with contextlib.suppress(NotMeasured, OSError):
                take()

    def _time_is_up(self) -> bool:
        return time.monotonic() - self._began > self.limit_s

    def sample(self, system: System, measures: tuple[Measure, ...], take: Callable[[], Mapping[str, float]]) -> None:
        """Take figures by the keys of their measures, or note why not."""
        if any((measure.key, system.name) in self.results.missing for measure in measures):
            return
        try:
            if self._time_is_up():
                raise ToolMissing("the time of the run was up")
            figures, foreign_percent = self._undisturbed(take)
        except (NotMeasured, OSError) as failure:
            reason = failure if isinstance(failure, NotMeasured) else NotMeasured(str(failure))
            for measure in measures:
                self.results.miss(measure, system.name, reason)
            self.say(f"{system.name}: {measures[0].title}: not measured: {reason}")
            return
        for measure in measures:
            self.results.add(measure, system.name, Sample(figures[measure.key], foreign_percent))
        shown = ", ".join(f"{number(figures[measure.key])} {measure.unit}" for measure in measures)
        others = f" (others used {foreign_percent:.0f} % of a core)" if foreign_percent > 5 else ""
        self.say(f"{system.name}: {measures[0].title}: {shown}{others}")

    def _undisturbed(self, take: Callable[[], Mapping[str, float]]) -> tuple[Mapping[str, float], float]:
        if not self.quick:
            self._page_cache.fill()
        figures, percent = observed(take)
        if Sample(0, percent).disturbed and self._repeats_left:
            self._repeats_left -= 1
            self.say(f"again: others used {percent:.0f} % of a core")
            return observed(take)
        return figures, percent

    def fresh_broker(self, system: System) -> Broker:
        """A broker with nothing in it, which the caller stops."""
        return system.start(self.new_home(system))

    def new_home(self, system: System) -> Path:
        """Where a broker, or a cluster of them, can keep its data."""
        self._names += 1
        return self.work / f"{system.name}-{self._names}"

    def new_name(self) -> str:
        """Of a topic."""
        self._names += 1
        return f"bench-{self._names}"

    def broker(self, system: System) -> Broker:
        """The system's broker that stays up from section to section, warm."""
        broker = self._brokers.get(system.name)
        if broker is None or not broker.alive():
            broker = self._brokers[system.name] = self.fresh_broker(system)
            self._warm_up(broker)
        return broker

    def _warm_up(self, broker: Broker) -> None:
        """The same for both, long enough for a JIT to have seen every hot path."""
        self.say(f"{broker.system.name}: warming up")
        with contextlib.suppress(NotMeasured), self.topic(broker, 4) as topic:
            seconds = self.scaled(6, 3)
            self.load(
                broker,
                "produce",
                topic,
                connections=4,
                in_flight=4,
                record_bytes=1000,
                batch_records=16,
                seconds=seconds,
            )
            self.load(broker, "produce", topic, connections=32, seconds=seconds)
            self.load(broker, "produce", topic, connections=1, seconds=2)
            self.load(broker, "fetch", topic, seconds=2)

    @contextlib.contextmanager
    def topic(self, broker: Broker, partitions: int) -> Iterator[str]:
        """A topic that goes when the block ends."""
        name = self.lasting_topic(broker, partitions)
        try:
            yield name
        finally:
            if broker.alive():
                with contextlib.suppress(NotMeasured):
                    topics.delete(broker.address, name)

    def lasting_topic(self, broker: Broker, partitions: int) -> str:
        """A topic that goes with its broker."""
        name = self.new_name()
        topics.create(broker.address, name, partitions)
        return name

    def load(self, broker: Broker, command: str, topic: str = "", **flags: int) -> dict[str, float]:
        """What the load program saw."""
        return self.load_at(broker.address, command, topic, **flags)

    def load_at(self, address: str, command: str, topic: str, **flags: int) -> dict[str, float]:
        """The same, for a broker that may be one of several."""
        return processes.run_json(self._load_command(address, command, topic, **flags), LOAD_TIMEOUT_S)

    def load_command(self, broker: Broker, command: str, topic: str, **flags: int) -> list[str]:
        return self._load_command(broker.address, command, topic, **flags)

    def _load_command(self, address: str, command: str, topic: str, **flags: int) -> list[str]:
        given = [part for name, value in flags.items() for part in (f"-{name.replace('_', '-')}", str(value))]
        return [self.tools.load_program(), command, "-addr", address, "-topic", topic, *given]

    def client(self, name: str, *arguments: object) -> dict[str, float]:
        """What one of bench/clients saw, in a process of its own."""
        return processes.run_json(self.client_command(name, *arguments), LOAD_TIMEOUT_S, cwd=ROOT)

    def client_command(self, name: str, *arguments: object) -> list[str]:
        """To be run in ROOT."""
        return [sys.executable, "-m", f"bench.clients.{name}", *map(str, arguments)]

    def stop_brokers(self) -> None:
        for broker in self._brokers.values():
            broker.stop()
        self._brokers.clear()

    def close(self) -> None:
        self.stop_brokers()
        shutil.rmtree(self.work, ignore_errors=True)
