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
size as the most that a partition gives in one answer. Only whole batches count as read. A poll is a request that names
200 quiet partitions, without a session and without waiting, as consumers with librdkafka send it."""

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
POLLED_PARTITIONS = 200
POLL = (
    Measure("fetch.poll.rate", "polls of 200 quiet partitions", "requests/s", higher_is_better=True),
    Measure("fetch.poll.cpu", "polls of 200 quiet partitions, broker CPU", "us/request"),
)


def run(harness: Harness) -> None:
    filled: dict[int, str] = {}
    for case in CASES:
        for system in harness.turns():
            harness.sample(system, case.measures, partial(fetch, harness, system, case, filled))
    for system in harness.turns():
        harness.sample(system, POLL, partial(poll, harness, system))


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


def poll(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.broker(system)
    with harness.topic(broker, POLLED_PARTITIONS) as topic:
        cpu_before_s = broker.cpu_s()
        seen = harness.load(broker, "full", topic, partitions=POLLED_PARTITIONS, seconds=harness.scaled(4, 2))
        cpu_s = broker.cpu_s() - cpu_before_s
    rate, cpu = POLL
    return {rate.key: seen["requests"] / seen["seconds"], cpu.key: cpu_s / seen["requests"] * 1e6}


def fill(harness: Harness, broker: Broker) -> str:
    topic = harness.lasting_topic(broker, 4)
    batches = {"connections": 4, "in_flight": 2, "record_bytes": 1000, "batch_records": 16}
    harness.load(broker, "produce", topic, **batches, bytes=FILL_BYTES, seconds=60)
    return topic
