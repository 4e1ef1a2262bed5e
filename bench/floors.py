"""What `make bench` insists on. A change that breaks a floor is slower than it may be, whatever else it does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bench.errors import ToolMissing
from bench.results import Results, number


class Bound(Enum):
    """How a figure is held to its floor."""

    RATIO_MIN = "at least {} x Kafka"
    RATIO_MAX = "at most {} x Kafka"
    VALUE_MAX = "at most {}"


class Verdict(Enum):
    HOLDS = "holds"
    FAILS = "FAILS"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Floor:
    key: str
    bound: Bound
    limit: float

    def __str__(self) -> str:
        return self.bound.value.format(f"{self.limit:g}")

    def judge(self, results: Results) -> Verdict:
        """A figure that Ottla owes and did not give in every round fails; without Kafka's nothing is compared."""
        measure = results.by_key().get(self.key)
        if measure is None:
            return Verdict.NOT_JUDGED
        reason = results.missing.get((self.key, "ottla"))
        if reason is not None and not isinstance(reason, ToolMissing):
            return Verdict.FAILS
        value = results.median(measure, "ottla")
        if value is None:
            return Verdict.NOT_JUDGED
        if self.bound is Bound.VALUE_MAX:
            return Verdict.HOLDS if value <= self.limit else Verdict.FAILS
        ratio = results.ratio(measure)
        if ratio is None:
            return Verdict.NOT_JUDGED
        holds = ratio >= self.limit if self.bound is Bound.RATIO_MIN else ratio <= self.limit
        return Verdict.HOLDS if holds else Verdict.FAILS


FLOORS = (
    Floor("startup.first_answer", Bound.RATIO_MAX, 0.3),
    Floor("startup.resident", Bound.VALUE_MAX, 80),
    Floor("startup.resident_loaded", Bound.VALUE_MAX, 150),
    Floor("produce.java_1kb.rate", Bound.RATIO_MIN, 1.15),
    Floor("produce.java_1kb.cpu", Bound.RATIO_MAX, 0.5),
    Floor("produce.java_1kb_all.rate", Bound.RATIO_MIN, 1.15),
    Floor("produce.java_1kb_all.cpu", Bound.RATIO_MAX, 0.5),
    Floor("produce.java_100b.rate", Bound.RATIO_MIN, 1.15),
    Floor("produce.java_100b.cpu", Bound.RATIO_MAX, 0.5),
    Floor("produce.librdkafka_1kb.rate", Bound.RATIO_MIN, 1.2),
    Floor("produce.librdkafka_1kb.cpu", Bound.RATIO_MAX, 0.45),
    Floor("requests.1.rate", Bound.RATIO_MIN, 1.8),
    Floor("requests.1.p50", Bound.RATIO_MAX, 0.6),
    Floor("requests.32.rate", Bound.RATIO_MIN, 1.3),
    Floor("requests.32.p99", Bound.RATIO_MAX, 1),
    Floor("fetch.64kb.rate", Bound.RATIO_MIN, 1.5),
    Floor("fetch.64kb.cpu", Bound.RATIO_MAX, 1),
    Floor("fetch.1mb.rate", Bound.RATIO_MIN, 1.5),
    Floor("fetch.1mb.cpu", Bound.RATIO_MAX, 1),
    Floor("e2e.p50", Bound.RATIO_MAX, 0.8),
    Floor("e2e.p99", Bound.RATIO_MAX, 0.8),
    Floor("cpu.million_records", Bound.VALUE_MAX, 0.19),
    Floor("transactions.librdkafka", Bound.RATIO_MIN, 1),
    Floor("transactions.java", Bound.RATIO_MIN, 1),
    Floor("groups.classic.join", Bound.RATIO_MAX, 1),
    Floor("groups.classic.leave", Bound.RATIO_MAX, 1),
    Floor("groups.consumer.join", Bound.RATIO_MAX, 0.4),
    Floor("groups.consumer.leave", Bound.RATIO_MAX, 0.4),
    Floor("groups.commits", Bound.RATIO_MIN, 1),
    Floor("groups.heartbeats_cpu", Bound.VALUE_MAX, 25),
    Floor("idle.connection_memory", Bound.VALUE_MAX, 20),
    Floor("idle.connections_cpu", Bound.VALUE_MAX, 5),
    Floor("idle.partition_memory", Bound.VALUE_MAX, 20),
    Floor("idle.partitions_start", Bound.VALUE_MAX, 10),
    Floor("idle.session_poll", Bound.VALUE_MAX, 1),
    Floor("cluster.ready", Bound.RATIO_MAX, 0.3),
    Floor("cluster.produce.rate", Bound.RATIO_MIN, 2.5),
    Floor("cluster.produce.cpu", Bound.RATIO_MAX, 0.3),
    Floor("cluster.requests.rate", Bound.RATIO_MIN, 1.5),
    Floor("cluster.requests.p99", Bound.RATIO_MAX, 1),
    Floor("cluster.resident_loaded", Bound.RATIO_MAX, 0.2),
    Floor("cluster.stop_gap", Bound.VALUE_MAX, 0.3),
    Floor("cluster.kill_gap", Bound.VALUE_MAX, 2),
    Floor("cluster.idle_cpu", Bound.VALUE_MAX, 10),
    Floor("cluster.failover", Bound.VALUE_MAX, 5),
    Floor("spark.first", Bound.RATIO_MAX, 1),
    Floor("spark.batch.none", Bound.RATIO_MIN, 3),
    Floor("spark.batch.lz4", Bound.RATIO_MIN, 2),
    Floor("spark.batch.zstd", Bound.RATIO_MIN, 2),
    Floor("spark.stream", Bound.RATIO_MIN, 2.5),
    Floor("spark.write.exactly_once", Bound.RATIO_MIN, 1.5),
    Floor("spark.write.at_least_once", Bound.RATIO_MIN, 1.8),
    Floor("spark.small", Bound.RATIO_MAX, 1.7),
    Floor("spark.plan", Bound.VALUE_MAX, 0.5),
)


def floor_of(key: str) -> Floor | None:
    return next((floor for floor in FLOORS if floor.key == key), None)


def judged(results: Results) -> list[tuple[Floor, Verdict]]:
    """Floors of the measures that came up in this run."""
    return [(floor, floor.judge(results)) for floor in FLOORS if floor.key in results.by_key()]


def broken(results: Results) -> list[str]:
    """One sentence for each floor that does not hold."""
    return [sentence(floor, results) for floor, verdict in judged(results) if verdict is Verdict.FAILS]


def sentence(floor: Floor, results: Results) -> str:
    measure = results.by_key()[floor.key]
    value, ratio = results.median(measure, "ottla"), results.ratio(measure)
    if (floor.key, "ottla") in results.missing:
        return f"{measure.title}: not measured ({results.missing[floor.key, 'ottla']}); wanted {floor}"
    beside = f", {number(ratio)} x Kafka" if ratio is not None else ""
    return f"{measure.title}: {number(value)} {measure.unit}{beside}; wanted {floor}"
