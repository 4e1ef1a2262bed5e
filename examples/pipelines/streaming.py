"""The same as the declarative pipeline, in plain Structured Streaming: once over what is new in the topics.

    python generate.py
    python streaming.py --data data
    python generate.py --start 2026-03-01T13:00
    python streaming.py --data data

Five queries: clean activity, clean metrics and rejects go to a lake of Parquet files, cut by day; sessions and minutes
of services go back to topics, exactly once. Sessions are found by a processor of our own with state and timers
(`transformWithState`), minutes by Spark's windows. The second run goes on where the first one stopped. The brokers are
those in the variable OTTLA_BOOTSTRAP, else 127.0.0.1:9092.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import steps
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from ottla import spark as ottla_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

STARTS_MAX = 5
GAP_US = 30 * 60 * 1_000_000
"""`steps.GAP` in microseconds, in which a processor counts."""
STATE_SCHEMA = "started bigint, ended bigint, views bigint, cents bigint"
PROCESSOR_SCHEMA = f"user string, {STATE_SCHEMA}"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {**steps.SPARK_SETTINGS, "spark.sql.streaming.stateStore.providerClass": ROCKS_DB}


class Session(NamedTuple):
    """What a user did so far. Times are microseconds since 1970."""

    started: int
    ended: int
    views: int
    cents: int

    def finished_at_ms(self) -> int:
        """The watermark from which on nobody can add to it."""
        return -(-(self.ended + GAP_US) // 1000)


def merged(sessions: list[Session]) -> list[Session]:
    """Sessions of one user without those that a view in between has joined; records come out of order."""
    result: list[Session] = []
    for session in sorted(sessions):
        last = result[-1] if result else None
        if last is None or session.started > last.ended + GAP_US:
            result.append(session)
        else:
            views, cents = last.views + session.views, last.cents + session.cents
            result[-1] = Session(last.started, max(last.ended, session.ended), views, cents)
    return result


class Sessions(StatefulProcessor):
    """Keeps the open sessions of each user, and one timer for the first of them that will be over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getListState("open", STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        views = [Session(row.at_us, row.at_us, 1, row.cents) for row in rows]
        self._keep(merged([*self._known(), *views]))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        known = self._known()
        self._keep([session for session in known if session.finished_at_ms() > watermark_ms])
        for session in known:
            if session.finished_at_ms() <= watermark_ms:
                yield Row(user=key[0], **session._asdict())

    def close(self) -> None:
        pass

    def _known(self) -> list[Session]:
        return [Session(*values) for values in self._open.get()] if self._open.exists() else []

    def _keep(self, sessions: list[Session]) -> None:
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        if sessions:
            self._open.put([tuple(session) for session in sessions])
            self._handle.registerTimer(min(session.finished_at_ms() for session in sessions))
        else:
            self._open.clear()


def sessions(activity: DataFrame) -> DataFrame:
    """What each user did without a long pause; a session comes out when nobody can add to it any more."""
    views = activity.withWatermark("at", steps.DISORDER).select(
        "user", "at", F.unix_micros("at").alias("at_us"), "cents"
    )
    found = views.groupBy("user").transformWithState(Sessions(), PROCESSOR_SCHEMA, "Append", "EventTime")
    times = [F.timestamp_micros(name).alias(name) for name in ("started", "ended")]
    return found.select("user", *times, "views", "cents")


def queries(spark: SparkSession, lake: Path) -> dict[str, DataStreamWriter]:
    """Every query by name. A query is its name: its checkpoint is kept under it."""

    def records(*topics: str) -> DataFrame:
        return spark.readStream.format("ottla").options(**steps.topic_options(*topics)).load()

    activity = steps.clean(records(steps.ACTIVITY), steps.ACTIVITY)
    metrics = steps.clean(records(steps.METRICS), steps.METRICS)
    rejected = steps.rejected(records(steps.ACTIVITY, steps.METRICS))

    def to_lake(rows: DataFrame, table: str) -> DataStreamWriter:
        return rows.writeStream.format("parquet").option("path", str(lake / table))

    def to_topic(rows: DataFrame, key: str, topic: str) -> DataStreamWriter:
        return steps.as_records(rows, key).writeStream.format("ottla").options(**steps.sink_options(topic))

    return {
        "activity": to_lake(activity, "activity").partitionBy("day"),
        "metrics": to_lake(metrics, "metrics").partitionBy("day"),
        "rejected": to_lake(rejected, "rejected"),
        "sessions": to_topic(sessions(activity), "user", steps.SESSIONS),
        "service_minutes": to_topic(steps.service_minutes(metrics), "service", steps.SERVICE_MINUTES),
    }


def run(spark: SparkSession, data: Path) -> None:
    """Each query over what is new, one after another."""
    for name, writer in queries(spark, data / "lake").items():
        began = time.monotonic()
        named = writer.queryName(name).option("checkpointLocation", str(data / "checkpoints" / name))
        count = finish(named.trigger(availableNow=True))
        print(f"{name:16} {count:7} records in {time.monotonic() - began:.1f} s", flush=True)


def finish(writer: DataStreamWriter) -> int:
    """Run a query to its end; returns how many records it has read.

    One that fails is started again a few times, as the declarative pipeline does it: it goes on from its checkpoint.
    """
    for attempt in range(1, STARTS_MAX + 1):
        query = writer.start()
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as error:
            if attempt == STARTS_MAX:
                raise
            print(f"{query.name} failed and is started again: {str(error).splitlines()[0]}", flush=True)
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="lake and checkpoints (%(default)s)")
    options = parser.parse_args()
    steps.make_topics()
    spark = ottla_spark.session("streaming", master="local[2]", config=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        run(spark, options.data.resolve())
    except StreamingQueryException as error:
        raise SystemExit(f"{error}\nA query failed; run this again to go on from where it stopped.") from None
    finally:
        spark.stop()
    print(f"To compare the lake with the topics: python history.py --data {options.data}")


if __name__ == "__main__":
    main()
