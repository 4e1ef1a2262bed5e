"""Transactions: what it costs to make a hundred records all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.harness import Harness
from bench.results import Measure
from bench.sections.produce import Case, performance_tool
from bench.systems import System

TITLE = "Transactions"
ABOUT = """One producer, one transaction after the other, to four partitions: librdkafka with 100 records of 100 B in
each, and Kafka's `ProducerPerformance`, which ends a transaction after a time: after 2 ms, records of 1 kB."""

LIBRDKAFKA = Measure(
    "transactions.librdkafka", "librdkafka, 100 records a transaction", "records/s", higher_is_better=True
)
JAVA = Measure("transactions.java", "Java, a transaction each 2 ms", "MB/s", higher_is_better=True)
JAVA_CASE = Case(
    "java_transactions",
    JAVA.title,
    60_000,
    1000,
    ("acks=all", "enable.idempotence=true"),
    ("--transactional-id", "bench-performance", "--transaction-duration-ms", "2"),
)


def run(harness: Harness) -> None:
    for measure, take in ((LIBRDKAFKA, one_by_one), (JAVA, by_time)):
        for system in harness.systems:
            harness.warm(partial(take, harness, system))
        for system in harness.turns():
            harness.sample(system, (measure,), partial(take, harness, system))


def one_by_one(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.broker(system)
    with harness.topic(broker, 4) as topic:
        seen = harness.client("transactions", broker.address, topic, harness.scaled(1000, 200), 100, 100)
    return {LIBRDKAFKA.key: seen["records_s"]}


def by_time(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.broker(system)
    records = harness.scaled(JAVA_CASE.records, JAVA_CASE.records // 4)
    with harness.topic(broker, 4) as topic:
        return {JAVA.key: performance_tool(harness, broker.address, topic, records, JAVA_CASE)}
