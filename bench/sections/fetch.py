"""How fast a consumer can read what is in the page cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from bench.harness import Harness
from bench.results import Measure
from bench.systems import Broker, System

TITLE = "Fetch"
ABOUT = """Four connections, each of which reads one partition from its beginning, again and again, with the given
size as the most that a partition gives in one answer. Only whole batches count as read."""

FILL_BYTES = 500_000_000


@dataclass(frozen=True, slots=True)
class Case:
    key: str
    title: str
    fetch_bytes: int

    @property
    def measures(self) -> tuple[Measure, Measure]:
        return (
            Measure(f"fetch.{self.key}.rate", self.title, "MB/s", higher_is_better=True),
            Measure(f"fetch.{self.key}.cpu", f"{self.title}, broker CPU", "s/GB"),
        )


CASES = (Case("64kb", "64 kB", 1 << 16), Case("1mb", "1 MB", 1 << 20))


def run(harness: Harness) -> None:
    filled: dict[int, str] = {}
    for case in CASES:
        for system in harness.turns():
            harness.sample(system, case.measures, partial(fetch, harness, system, case, filled))


def fetch(harness: Harness, system: System, case: Case, filled: dict[int, str]) -> Mapping[str, float]:
    """`filled` remembers, by the process of a broker, the topic that holds its data."""
    broker = harness.broker(system)
    if broker.process.pid not in filled:
        filled[broker.process.pid] = fill(harness, broker)
    topic = filled[broker.process.pid]
    cpu_before_s = broker.cpu_s()
    seen = harness.load(broker, "fetch", topic, fetch_bytes=case.fetch_bytes, seconds=harness.scaled(4, 2))
    cpu_s = broker.cpu_s() - cpu_before_s
    rate, cpu = case.measures
    return {rate.key: seen["bytes"] / seen["seconds"] / 1e6, cpu.key: cpu_s / (seen["bytes"] / 1e9)}


def fill(harness: Harness, broker: Broker) -> str:
    topic = harness.lasting_topic(broker, 4)
    batches = {"connections": 4, "in_flight": 2, "record_bytes": 1000, "batch_records": 16}
    harness.load(broker, "produce", topic, **batches, bytes=FILL_BYTES, seconds=60)
    return topic
