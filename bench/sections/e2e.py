"""How long a record takes to reach a consumer that waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.harness import Harness
from bench.results import Measure
from bench.systems import System

TITLE = "End to end"
ABOUT = """One record of 100 B at a time, from the call of librdkafka's `produce` to its arrival at a consumer that
waits in a fetch."""

P50 = Measure("e2e.p50", "produce to consume, p50", "ms")
P99 = Measure("e2e.p99", "produce to consume, p99", "ms")


def run(harness: Harness) -> None:
    for system in harness.turns():
        harness.sample(system, (P50, P99), partial(travel, harness, system))


def travel(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.broker(system)
    with harness.topic(broker, 1) as topic:
        seen = harness.client("end_to_end", broker.address, topic, harness.scaled(5000, 1000))
    return {P50.key: seen["p50_ms"], P99.key: seen["p99_ms"]}
