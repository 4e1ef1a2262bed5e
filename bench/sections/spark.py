"""Spark: rows a second from topics and to topics, with `format("ottla")` and with Spark's own Kafka connector."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import partial

from bench import processes
from bench.errors import NotMeasured, ToolMissing
from bench.harness import ROOT, Harness
from bench.results import Measure
from bench.systems import Broker, System
from bench.tools import cache_directory, spark_jars

TITLE = "Spark"
ABOUT = """A local Spark with two threads for each system, both up and warm: Spark's own Kafka connector (4.2.0) with
Apache Kafka, and `format("ottla")` with Ottla. Four partitions, rows of 100 B, into Spark's `noop`; the sink takes rows
from Parquet files in one micro-batch. Spark's own sink delivers at least once; Ottla's is measured both ways beside
it."""

ANSWER_S = 150
CODECS = ("none", "lz4", "zstd")

FIRST = Measure("spark.first", "start of a session to the end of its first query", "s")
BATCH = {
    codec: Measure(f"spark.batch.{codec}", f"batch read, {words}", "rows/s", higher_is_better=True)
    for codec, words in zip(CODECS, ("not compressed", "lz4", "zstd"), strict=True)
}
STREAM = Measure("spark.stream", "stream read with AvailableNow", "rows/s", higher_is_better=True)
ONCE = Measure("spark.write.exactly_once", "stream write, Ottla's exactly once", "rows/s", higher_is_better=True)
AT_LEAST = Measure("spark.write.at_least_once", "stream write, at least once", "rows/s", higher_is_better=True)
MEASURES = (FIRST, *BATCH.values(), STREAM, ONCE, AT_LEAST)


class Session:
    """A Spark session in a process of its own."""

    def __init__(self, harness: Harness, system: System, broker: Broker) -> None:
        jars = ",".join(map(str, spark_jars(cache_directory()).glob("*.jar"))) if system.name == "kafka" else ""
        work = harness.new_home(system)
        work.mkdir(parents=True)
        self.broker, self.topics = broker, dict[str, str]()
        pipe = subprocess.PIPE
        with (work / "errors").open("w") as errors:
            self._process = processes.spawn(
                harness.client_command("spark_job", system.name, broker.address, work, jars),
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                cwd=ROOT,
            )

    def ask(self, *words: object) -> dict[str, float]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or self._process.poll() is not None:
            raise NotMeasured("the Spark session ended")
        stdin.write(" ".join(map(str, words)) + "\n")
        stdin.flush()
        return processes.read_json(processes.read_line(stdout, self._process, ANSWER_S))

    def close(self) -> None:
        processes.stop(self._process)


def run(harness: Harness) -> None:
    rows = harness.scaled(3_000_000, 600_000)
    sessions: dict[str, Session] = {}
    try:
        for system in harness.systems:
            try:
                sessions[system.name] = begin(harness, system, rows)
            except NotMeasured as reason:
                for measure in MEASURES:
                    harness.results.miss(measure, system.name, reason)
                harness.say(f"{system.name}: Spark: not measured: {reason}")
        measure_all(harness, sessions, rows)
    finally:
        for session in sessions.values():
            session.close()


def begin(harness: Harness, system: System, rows: int) -> Session:
    """A session, and topics to read."""
    try:
        import pyspark
    except ImportError:
        raise ToolMissing("no pyspark") from None
    del pyspark
    broker = harness.broker(system)
    topics = {codec: harness.lasting_topic(broker, 4) for codec in CODECS}
    for codec, topic in topics.items():
        harness.client("spark_rows", broker.address, topic, 4, rows, codec)
    session = Session(harness, system, broker)
    session.topics = topics
    harness.sample(system, (FIRST,), lambda: {FIRST.key: session.ask("first", topics["none"], rows)["seconds"]})
    return session


def measure_all(harness: Harness, sessions: Mapping[str, Session], rows: int) -> None:
    def read(command: str, measure: Measure, codec: str, session: Session) -> Mapping[str, float]:
        return {measure.key: session.ask(command, session.topics[codec], rows)["rows_s"]}

    def write(measure: Measure, delivery: str, session: Session) -> Mapping[str, float]:
        with harness.topic(session.broker, 4) as topic:
            return {measure.key: session.ask("write", topic, rows // 3, delivery)["rows_s"]}

    takes = [(BATCH[codec], partial(read, "batch", BATCH[codec], codec)) for codec in CODECS]
    takes.append((STREAM, partial(read, "stream", STREAM, "none")))
    takes.append((ONCE, partial(write, ONCE, "exactly_once")))
    takes.append((AT_LEAST, partial(write, AT_LEAST, "at_least_once")))
    for measure, take in takes:
        for session in sessions.values():
            harness.warm(partial(take, session))
        for system in harness.turns():
            if system.name in sessions:
                harness.sample(system, (measure,), partial(take, sessions[system.name]))
