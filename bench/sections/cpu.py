"""What a record costs when producers batch well."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.harness import Harness
from bench.results import Measure
from bench.systems import System

TITLE = "CPU per record"
ABOUT = """Records of 100 B in batches of 1,000, one batch per request, four connections, raw load. The broker never
looks at a record, so a million of them costs a thousand requests and one checksum over 100 MB."""

MILLION_RECORDS = Measure("cpu.million_records", "broker CPU per million records", "s")
BATCH_RECORDS = 1000
RECORD_BYTES = 100


def run(harness: Harness) -> None:
    for system in harness.turns():
        harness.sample(system, (MILLION_RECORDS,), partial(spend, harness, system))


def spend(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.broker(system)
    records = harness.scaled(15_000_000, 5_000_000)
    with harness.topic(broker, 4) as topic:
        cpu_before_s = broker.cpu_s()
        batches = {"connections": 4, "record_bytes": RECORD_BYTES, "batch_records": BATCH_RECORDS}
        seen = harness.load(broker, "produce", topic, **batches, bytes=records * RECORD_BYTES, seconds=60)
        cpu_s = broker.cpu_s() - cpu_before_s
    return {MILLION_RECORDS.key: cpu_s / (seen["records"] / 1e6)}
