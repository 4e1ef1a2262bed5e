"""The Spark job, a program of its own: three topics in, two out, exactly once.

    python -m demo.pipeline --bootstrap 127.0.0.1:9092 --data directory

What it says on standard output is a JSON object per line, for `job.py`. A line `finish` on standard input ends the
query and has Spark count what is in the results; the end of standard input ends everything at once.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from demo.streams import HEALTH, RESULTS, STREAMS, VISITS
from ottla import spark as ottla_spark
from ottla.spark.listener import QueryReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RESTARTS_MAX: Final = 5
LOOK_SECONDS: Final = 0.2
EVENT: Final = (
    "n bigint, sent_ms double, user string, page string, service string, level string, name string, value bigint"
)
RESULT: Final = "source string, n bigint, category string, amount bigint"

_telling = threading.Lock()


def tell(kind: str, **what: Any) -> None:
    with _telling:
        print(json.dumps({"kind": kind, **what}), flush=True)


def results(events: DataFrame) -> DataFrame:
    """One row for each event: which topic it belongs to, and what it counts for."""
    fields = events.selectExpr("key", "topic as source", f"from_json(cast(value as string), '{EVENT}') as event")
    return fields.selectExpr(
        "key",
        f"if(source = 'activity', '{VISITS}', '{HEALTH}') as topic",
        "to_json(struct(source, event.n, event.sent_ms, coalesce(event.page, event.level, event.name) as category,"
        " coalesce(event.value, 1) as amount)) as value",
    )


class Pipeline:
    """A query, which is started again from its checkpoint when it fails."""

    def __init__(self, session: SparkSession, bootstrap: str, data: Path, cores: int) -> None:
        self._session, self._bootstrap, self._data, self._cores = session, bootstrap, data, cores
        self._restarts = 0

    def start(self) -> StreamingQuery:
        events = (
            self._session.readStream.format("ottla")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", ",".join(stream.topic for stream in STREAMS))
            .option("startingOffsets", "earliest")
            .load()
        )
        # Each task writes in a transaction of its own, so a core has one task, which reads several partitions in turn.
        return (
            results(events)
            .coalesce(self._cores)
            .writeStream.format("ottla")
            .queryName("demo")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("kafka.compression.type", "lz4")
            .option("delivery", "exactly_once")
            .option("checkpointLocation", str(self._data / "checkpoint"))
            .trigger(processingTime="500 milliseconds")
            .start()
        )

    def run(self, orders: queue.Queue[str]) -> bool:
        """Until an order comes; whether that is to finish."""
        running = self.start()
        tell("started", spark=self._session.version)
        while True:
            try:
                order = orders.get(timeout=LOOK_SECONDS)
                running.stop()
                return order == "finish"
            except queue.Empty:
                if not running.isActive:
                    running = self._start_again(running)

    def _start_again(self, failed: StreamingQuery) -> StreamingQuery:
        why = str(failed.exception() or "it ended without a word")
        self._restarts += 1
        if self._restarts > RESTARTS_MAX:
            raise SystemExit(f"the query failed {self._restarts} times, at last: {why}")
        tell("restarted", why=why.strip().splitlines()[0][:300])
        return self.start()

    def audit(self) -> list[dict[str, Any]]:
        """Committed results by stream and category: rows, different events, and what they add up to."""
        stored = (
            self._session.read.format("ottla")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", ",".join(RESULTS))
            .option("isolation.level", "read_committed")
            .load()
        )
        fields = stored.selectExpr(f"from_json(cast(value as string), '{RESULT}') as result").select("result.*")
        fields.createOrReplaceTempView("results")
        rows = self._session.sql(
            "select source, category, count(*) as rows, count(distinct n) as events, sum(amount) as amount "
            "from results group by source, category"
        )
        return [row.asDict() for row in rows.collect()]


def listen(orders: queue.Queue[str]) -> None:
    """Standard input becomes orders; its end is one, too."""
    for line in sys.stdin:
        orders.put(line.strip())
    orders.put("")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.pipeline", description="The Spark job of the demo.")
    parser.add_argument("--bootstrap", required=True, help="host:port of brokers, with commas between them")
    parser.add_argument("--data", type=Path, required=True, help="where checkpoint and work files go")
    parser.add_argument("--cores", type=int, default=2, help="how many tasks run at a time (%(default)s)")
    chosen = parser.parse_args()
    config = {
        "spark.local.dir": str(chosen.data / "local"),
        "spark.sql.warehouse.dir": str(chosen.data / "warehouse"),
        "spark.sql.shuffle.partitions": str(chosen.cores),
        # A job of a minute does not live to see what the optimizing compiler would win; half of its work is saved.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    # A task that fails is tried again, as in a cluster; local Spark gives up at once unless told otherwise.
    session = ottla_spark.session("demo", master=f"local[{chosen.cores},4]", config=config)
    session.sparkContext.setLogLevel("WARN")
    session.streams.addListener(ottla_spark.LagListener(_tell_batch))
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=listen, args=(orders,), daemon=True).start()
    pipeline = Pipeline(session, chosen.bootstrap, chosen.data, chosen.cores)
    if pipeline.run(orders):
        tell("audit", rows=pipeline.audit())
    session.stop()


def _tell_batch(report: QueryReport) -> None:
    tell("batch", batch=report.batch_id, rows=report.rows, ms=report.batch_ms, lag=report.lag)


if __name__ == "__main__":
    main()
