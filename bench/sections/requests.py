"""What one small request costs: the price of everything that is not moving bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from bench.harness import Harness
from bench.results import Measure
from bench.systems import System

TITLE = "Small requests"
ABOUT = """Produce requests with one record of 100 B, acks=1, one in flight on each connection, to four partitions."""


@dataclass(frozen=True, slots=True)
class Case:
    connections: int

    @property
    def measures(self) -> tuple[Measure, ...]:
        key, title = f"requests.{self.connections}", f"{self.connections} connection{'s' * (self.connections > 1)}"
        return (
            Measure(f"{key}.rate", title, "requests/s", higher_is_better=True),
            Measure(f"{key}.p50", f"{title}, p50", "ms"),
            Measure(f"{key}.p99", f"{title}, p99", "ms"),
            Measure(f"{key}.cpu", f"{title}, broker CPU", "us/request"),
        )


CASES = (Case(1), Case(32))


def run(harness: Harness) -> None:
    for case in CASES:
        for system in harness.turns():
            harness.sample(system, case.measures, partial(request, harness, system, case))


def request(harness: Harness, system: System, case: Case) -> Mapping[str, float]:
    broker = harness.broker(system)
    with harness.topic(broker, 4) as topic:
        cpu_before_s = broker.cpu_s()
        seconds = harness.scaled(5, 2)
        seen = harness.load(broker, "produce", topic, connections=case.connections, seconds=seconds)
        cpu_s = broker.cpu_s() - cpu_before_s
    figures = (seen["per_second"], seen["p50_ms"], seen["p99_ms"], cpu_s / seen["requests"] * 1e6)
    return {measure.key: figure for measure, figure in zip(case.measures, figures, strict=True)}
