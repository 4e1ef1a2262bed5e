"""How fast producers can be, and what the broker pays for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from bench import processes
from bench.errors import NotMeasured
from bench.harness import LOAD_TIMEOUT_S, Harness
from bench.results import Measure
from bench.systems import System

TITLE = "Produce"
ABOUT = """Kafka's own `ProducerPerformance` and librdkafka (through confluent-kafka), uncompressed, to four
partitions. The Java client's first fifth, which warms its JVM, is not counted. On few cores the client is the limit:
CPU per GB says what is left for others."""

QUICK_DIVISOR = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One producer; `properties` are None for librdkafka."""

    key: str
    title: str
    records: int
    record_bytes: int
    properties: tuple[str, ...] | None
    flags: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[Measure, Measure]:
        return (
            Measure(f"produce.{self.key}.rate", self.title, "MB/s", higher_is_better=True),
            Measure(f"produce.{self.key}.cpu", f"{self.title}, broker CPU", "s/GB"),
        )


CASES = (
    Case("java_1kb", "Java, 1 kB, acks=1", 400_000, 1000, ("acks=1",)),
    Case("java_1kb_all", "Java, 1 kB, idempotent", 400_000, 1000, ("acks=all", "enable.idempotence=true")),
    Case("java_100b", "Java, 100 B, acks=1", 3_000_000, 100, ("acks=1",)),
    Case("librdkafka_1kb", "librdkafka, 1 kB, acks=all", 600_000, 1000, None),
)


def run(harness: Harness) -> None:
    for case in CASES:
        for system in harness.systems:
            harness.warm(partial(produce, harness, system, case))
        for system in harness.turns():
            harness.sample(system, case.measures, partial(produce, harness, system, case))


def produce(harness: Harness, system: System, case: Case) -> Mapping[str, float]:
    broker = harness.broker(system)
    records = harness.scaled(case.records, case.records // QUICK_DIVISOR)
    with harness.topic(broker, 4) as topic:
        cpu_before_s = broker.cpu_s()
        if case.properties is None:
            mb_s = harness.client("librdkafka_produce", broker.address, topic, 4, records, case.record_bytes, "all")[
                "mb_s"
            ]
        else:
            mb_s = performance_tool(harness, broker.address, topic, records, case)
        cpu_s = broker.cpu_s() - cpu_before_s
    rate, cpu = case.measures
    return {rate.key: mb_s, cpu.key: cpu_s / (records * case.record_bytes / 1e9)}


def performance_tool(harness: Harness, address: str, topic: str, records: int, case: Case) -> float:
    """MB/s as Kafka's own tool reports it after its warm-up."""
    flags = {
        "--topic": topic,
        "--num-records": records,
        "--record-size": case.record_bytes,
        "--throughput": -1,
        "--warmup-records": records // 5,
        "--bootstrap-server": address,
    }
    arguments = [part for flag, value in flags.items() for part in (flag, str(value))]
    properties = ["--command-property", "linger.ms=5", *(case.properties or ())]
    main = "org.apache.kafka.tools.ProducerPerformance"
    output = processes.run(
        harness.tools.java(main, *arguments, *case.flags, *properties, options=["-Xmx512M"]), LOAD_TIMEOUT_S
    )
    rates = re.findall(r"([\d.]+) records/sec .*99\.9th", output)
    if not rates or "Exception" in output:
        raise NotMeasured(f"the performance tool gave no figure: {output.strip()[-160:]}")
    return float(rates[-1]) * case.record_bytes / 1e6
