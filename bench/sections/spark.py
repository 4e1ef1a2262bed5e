"""Spark: rows a second from topics and to topics, with `format("ottla")` and with Spark's own Kafka connector."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

from bench import processes, topics
from bench.errors import NotMeasured, ToolMissing
from bench.harness import ROOT, Harness
from bench.results import Measure
from bench.systems import Broker, System
from bench.tools import cache_directory, spark_jars, spark_python

TITLE = "Spark"
ABOUT = """Apache Kafka's column is Spark's own JVM connector (4.2.0, on PySpark 4.2.0) with Apache Kafka; Ottla's is
`format("ottla")` with Ottla. Each has a local Spark with two threads and the settings of `ottla.spark.session`; both
are up and warm, and take turns. Four partitions, rows of 100 B in batches of 150, read into Spark's `noop`. The first
query is the same batch read, in a session that is started for it; the time of the start is counted. The sink takes rows
from four Parquet files in one micro-batch. Spark's own sink delivers at least once, and its figure stands beside both
ways of Ottla's. A small micro-batch has 1,000 rows. CPU is that of the session with all its workers, and of the
broker."""

ANSWER_S = 400
PARTITIONS = 4
CODECS = ("none", "lz4", "zstd")
WARM_UPS = 2
"""Java compiles what is hot, and then the hottest of it once more."""
SMALL_ROWS = 1000
PLANNED_PARTITIONS = 1000
ROWS_PER_BATCH = 150

FIRST = Measure("spark.first", "start of a session to the end of its first query", "s")
BATCH = {
    codec: Measure(f"spark.batch.{codec}", f"batch read, {words}", "rows/s", higher_is_better=True)
    for codec, words in zip(CODECS, ("not compressed", "lz4", "zstd"), strict=True)
}
BATCH_CPU = {
    codec: Measure(f"spark.batch.{codec}.cpu", f"{BATCH[codec].title}, CPU", "s/million rows") for codec in CODECS
}
STREAM = Measure("spark.stream", "stream read with AvailableNow", "rows/s", higher_is_better=True)
STREAM_CPU = Measure("spark.stream.cpu", f"{STREAM.title}, CPU", "s/million rows")
ONCE = Measure("spark.write.exactly_once", "stream write, Ottla's exactly once", "rows/s", higher_is_better=True)
ONCE_CPU = Measure("spark.write.exactly_once.cpu", f"{ONCE.title}, CPU", "s/million rows")
AT_LEAST = Measure("spark.write.at_least_once", "stream write, at least once", "rows/s", higher_is_better=True)
AT_LEAST_CPU = Measure("spark.write.at_least_once.cpu", f"{AT_LEAST.title}, CPU", "s/million rows")
SMALL = Measure("spark.small", "micro-batch of 1,000 rows", "ms")
PLAN = Measure("spark.plan", "planning a batch read of 1,000 partitions", "s")
MEASURES = (
    FIRST, *BATCH.values(), *BATCH_CPU.values(), STREAM, STREAM_CPU, ONCE, ONCE_CPU, AT_LEAST, AT_LEAST_CPU, SMALL, PLAN
)  # fmt: skip


class Session:
    """A Spark session in a process of its own."""

    def __init__(self, harness: Harness, system: System, broker: Broker) -> None:
        own_connector = system.name == "kafka"
        jars = ",".join(map(str, spark_jars(cache_directory()).glob("*.jar"))) if own_connector else ""
        python = python_of_connector(harness) if own_connector else sys.executable
        work = harness.new_home(system)
        work.mkdir(parents=True)
        self.broker = broker
        pipe = subprocess.PIPE
        with (work / "errors").open("w") as errors:
            self._process = processes.spawn(
                [python, *harness.client_command("spark_job", system.name, broker.address, work, jars)[1:]],
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            )

    def ask(self, *words: object) -> dict[str, float]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or self._process.poll() is not None:
            raise NotMeasured("the Spark session ended")
        stdin.write(" ".join(map(str, words)) + "\n")
        stdin.flush()
        return processes.read_json(processes.read_line(stdout, self._process, ANSWER_S))

    def cpu_s(self) -> float:
        return processes.cpu_seconds(self._process.pid) + self.broker.cpu_s()

    def close(self) -> None:
        processes.stop(self._process, timeout_s=5)


class Stage:
    """A system's broker with topics to read, and the session that is up at the moment."""

    def __init__(self, harness: Harness, system: System, rows: int) -> None:
        self._harness, self.system, self.rows = harness, system, rows
        self.broker = harness.broker(system)
        self.topics = {codec: harness.lasting_topic(self.broker, PARTITIONS) for codec in CODECS}
        for codec, topic in self.topics.items():
            harness.client("spark_rows", self.broker.address, topic, PARTITIONS, rows, codec)
        self.wide_topic = harness.lasting_topic(self.broker, PLANNED_PARTITIONS)
        wide_rows = PLANNED_PARTITIONS * ROWS_PER_BATCH
        harness.client("spark_rows", self.broker.address, self.wide_topic, PLANNED_PARTITIONS, wide_rows, "none")
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            raise NotMeasured("the Spark session ended")
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    # What is measured

    def first(self) -> Mapping[str, float]:
        self.close()
        began = time.monotonic()
        self._session = Session(self._harness, self.system, self.broker)
        self._session.ask("batch", self.topics["none"], self.rows)
        return {FIRST.key: time.monotonic() - began}

    def read(self, command: str, codec: str, rate: Measure, cpu: Measure) -> Mapping[str, float]:
        return self._charged((rate,), (cpu,), lambda: self.session.ask(command, self.topics[codec], self.rows))

    def write(self, delivery: str, rates: tuple[Measure, ...], cpus: tuple[Measure, ...]) -> Mapping[str, float]:
        with self._harness.topic(self.broker, PARTITIONS) as topic:
            figures = self._charged(rates, cpus, lambda: self.session.ask("write", topic, self.rows, delivery))
            stored = topics.end_offsets(self.broker.address, topic, PARTITIONS)
            if stored < self.rows:
                raise NotMeasured(f"only {stored} of {self.rows} rows are in the topic")
            return figures

    def small(self) -> Mapping[str, float]:
        batches = self._harness.scaled(60, 20)
        return {SMALL.key: self.session.ask("small", self.topics["none"], SMALL_ROWS, batches)["ms"]}

    def plan(self) -> Mapping[str, float]:
        return {PLAN.key: self.session.ask("plan", self.wide_topic, PLANNED_PARTITIONS)["seconds"]}

    def _charged(
        self, rates: tuple[Measure, ...], cpus: tuple[Measure, ...], take: Callable[[], Mapping[str, float]]
    ) -> Mapping[str, float]:
        before = self.session.cpu_s()
        rows_s = take()["rows_s"]
        cpu = (self.session.cpu_s() - before) / self.rows * 1e6
        return {rate.key: rows_s for rate in rates} | {measure.key: cpu for measure in cpus}


def run(harness: Harness) -> None:
    rows = harness.scaled(3_000_000, 600_000)
    stages: dict[str, Stage] = {}
    try:
        for system in harness.systems:
            try:
                check_pyspark()
                stages[system.name] = Stage(harness, system, rows)
            except NotMeasured as reason:
                for measure in MEASURES:
                    harness.results.miss(measure, system.name, reason)
                harness.say(f"{system.name}: Spark: not measured: {reason}")
        measure_all(harness, stages)
    finally:
        for stage in stages.values():
            stage.close()


def check_pyspark() -> None:
    try:
        import pyspark
    except ImportError:
        raise ToolMissing("no pyspark") from None
    del pyspark


def python_of_connector(harness: Harness) -> str:
    """A Python with the release of PySpark that the connector was made for; else this one, whose PySpark takes it."""
    try:
        return str(spark_python(cache_directory()))
    except NotMeasured as reason:
        harness.say(f"Spark's own connector runs on this environment's PySpark: {reason}")
        return sys.executable


def measure_all(harness: Harness, stages: Mapping[str, Stage]) -> None:
    """The first sessions stay for all that is to be measured warm, so the other rounds of these come last."""
    first_round, *later = in_rounds(harness)
    for system in first_round:
        if system.name in stages:
            harness.sample(system, (FIRST,), stages[system.name].first)
    for codec in CODECS:
        measures = (BATCH[codec], BATCH_CPU[codec])
        in_turns(
            harness,
            stages,
            measures,
            partial(Stage.read, command="batch", codec=codec, rate=measures[0], cpu=measures[1]),
        )
    in_turns(
        harness,
        stages,
        (STREAM, STREAM_CPU),
        partial(Stage.read, command="stream", codec="none", rate=STREAM, cpu=STREAM_CPU),
    )
    measure_writes(harness, stages)
    in_turns(harness, stages, (SMALL,), Stage.small)
    in_turns(harness, stages, (PLAN,), Stage.plan)
    for system in (system for systems in later for system in systems):
        if system.name in stages:
            harness.sample(system, (FIRST,), stages[system.name].first)


def in_rounds(harness: Harness) -> list[list[System]]:
    turns = list(harness.turns())
    return [turns[at : at + len(harness.systems)] for at in range(0, len(turns), len(harness.systems))]


Take = Callable[[Stage], Mapping[str, float]]


def in_turns(harness: Harness, stages: Mapping[str, Stage], measures: tuple[Measure, ...], take: Take) -> None:
    for _ in range(WARM_UPS):
        for stage in stages.values():
            harness.warm(partial(take, stage))
    for system in harness.turns():
        if system.name in stages:
            harness.sample(system, measures, partial(take, stages[system.name]))


def measure_writes(harness: Harness, stages: Mapping[str, Stage]) -> None:
    """Spark's own sink knows one way to deliver: its samples serve for both measures."""
    ways: dict[str, list[tuple[str, tuple[Measure, ...], tuple[Measure, ...]]]] = {
        "kafka": [("at_least_once", (ONCE, AT_LEAST), (ONCE_CPU, AT_LEAST_CPU))],
        "ottla": [("exactly_once", (ONCE,), (ONCE_CPU,)), ("at_least_once", (AT_LEAST,), (AT_LEAST_CPU,))],
    }
    for name, stage in stages.items():
        for way in ways[name] * WARM_UPS:
            harness.warm(partial(stage.write, *way))
    for system in harness.turns():
        if system.name in stages:
            for way in ways[system.name]:
                harness.sample(system, way[1] + way[2], partial(stages[system.name].write, *way))
