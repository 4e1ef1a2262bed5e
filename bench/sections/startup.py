"""How long until a broker answers, and what it weighs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from bench.harness import Harness
from bench.results import Measure
from bench.systems import Broker, System

TITLE = "Start and memory"
ABOUT = """A broker with an empty data directory, from the start of its process to the first Metadata answer that
names it. Kafka's formatting of the directory is not counted. Memory is resident memory of the process and its
children: two seconds after the start, and after 500 MB of 1 kB records, 200 connections that produce, and a read of
everything."""

FIRST_ANSWER = Measure("startup.first_answer", "start to first answer", "s")
RESIDENT = Measure("startup.resident", "memory after start", "MB")
RESIDENT_LOADED = Measure("startup.resident_loaded", "memory after load", "MB")

SETTLE_S = 2
LOAD_BYTES = 500_000_000


def run(harness: Harness) -> None:
    for system in harness.turns():
        harness.sample(system, (FIRST_ANSWER, RESIDENT), partial(start, harness, system))
    for system in harness.turns():
        harness.sample(system, (RESIDENT_LOADED,), partial(start_and_use, harness, system))


def start(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.fresh_broker(system)
    try:
        time.sleep(SETTLE_S)
        return {FIRST_ANSWER.key: broker.started_s, RESIDENT.key: broker.resident_mb()}
    finally:
        broker.stop()


def start_and_use(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.fresh_broker(system)
    try:
        use(harness, broker)
        return {RESIDENT_LOADED.key: broker.resident_mb()}
    finally:
        broker.stop()


def use(harness: Harness, broker: Broker) -> None:
    load_bytes = harness.scaled(LOAD_BYTES, LOAD_BYTES // 5)
    with harness.topic(broker, 4) as topic:
        batches = {"connections": 4, "in_flight": 4, "record_bytes": 1000, "batch_records": 16}
        harness.load(broker, "produce", topic, **batches, bytes=load_bytes, seconds=30)
        harness.load(broker, "produce", topic, connections=200, seconds=2)
        harness.load(broker, "fetch", topic, seconds=2)
