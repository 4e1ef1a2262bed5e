"""A batch job over the same history: the topics by offset ranges, and the lake, must agree with the streams.

    python history.py --data data

It finds in the lake how far the streams have read, reads just these offset ranges from the topics, and computes
everything anew: clean records, rejects, sessions (in another way than the streams do) and minutes of services. Then it
compares, record by record, with the lake and with what the streams have sent to topics. It ends with 1 if anything
differs. Run it while no stream runs. The brokers are those in the variable OTTLA_BOOTSTRAP, else 127.0.0.1:9092.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import steps
from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla import spark as ottla_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TABLES = ("activity", "metrics", "rejected")
DIFFERENCES_SHOWN = 5


class Comparison(NamedTuple):
    """What a stream wrote beside what the batch computes."""

    name: str
    batch_rows: int
    missing: int
    """Rows that the batch has and the stream has not."""
    extra: int
    """Rows that the stream has, or has more often than the batch."""
    examples: list[str]

    def __str__(self) -> str:
        verdict = "agree" if self.agrees else f"{self.missing} missing, {self.extra} too many"
        return f"{self.name:28} {self.batch_rows:8} rows   {verdict}"

    @property
    def agrees(self) -> bool:
        return self.missing == self.extra == 0


def compare(spark: SparkSession, lake: Path) -> Iterator[Comparison]:
    """Everything that the streams wrote, in the lake and in topics."""
    history = read_ranges(spark, ranges_in(spark, lake)).persist()
    activity, metrics = (steps.clean(history, topic).persist() for topic in (steps.ACTIVITY, steps.METRICS))
    finished, minutes = sessions(activity), service_minutes(metrics)
    rejected = steps.rejected(history)
    pairs = {
        "activity in the lake": (table(spark, lake / "activity", activity.schema), activity),
        "metrics in the lake": (table(spark, lake / "metrics", metrics.schema), metrics),
        "rejected in the lake": (table(spark, lake / "rejected", rejected.schema), rejected),
        "sessions in the topic": (topic_rows(spark, steps.SESSIONS), finished),
        "service minutes in the topic": (topic_rows(spark, steps.SERVICE_MINUTES), minutes),
    }
    # The declarative pipeline has these as tables, too.
    if (lake / "sessions").exists():
        pairs["sessions in the lake"] = (table(spark, lake / "sessions", finished.schema), finished)
        pairs["service minutes in the lake"] = (table(spark, lake / "service_minutes", minutes.schema), minutes)
    for name, (stream, batch) in pairs.items():
        yield comparison(name, stream, batch)
    for frame in (activity, metrics, history):
        frame.unpersist()


def table(spark: SparkSession, path: Path, schema: StructType | str) -> DataFrame:
    """A table of the lake, which may be empty. Spark's log in it leaves out the files of batches that failed."""
    return spark.read.schema(schema).parquet(str(path))


def ranges_in(spark: SparkSession, lake: Path) -> dict[str, dict[int, int]]:
    """How far the streams have read: the offset behind the last record of each partition that the lake knows."""
    activity, metrics, rejected = (
        table(spark, lake / name, "topic string, partition int, offset bigint").select(*steps.WHERE_FROM)
        for name in TABLES
    )
    rows = activity.union(metrics).union(rejected).groupBy("topic", "partition").agg(F.max("offset").alias("last"))
    ends: dict[str, dict[int, int]] = {}
    for row in rows.collect():
        ends.setdefault(row["topic"], {})[row["partition"]] = row["last"] + 1
    return ends


def read_ranges(spark: SparkSession, ends: dict[str, dict[int, int]]) -> DataFrame:
    """The topics from their first record up to these offsets, whatever has been written since."""
    options = {
        "kafka.bootstrap.servers": steps.bootstrap(),
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in ends.items()}),
        "startingOffsets": json.dumps({topic: dict.fromkeys(partitions, 0) for topic, partitions in ends.items()}),
        "endingOffsets": json.dumps(ends),
    }
    return spark.read.format("ottla").options(**options).load()


def topic_rows(spark: SparkSession, topic: str) -> DataFrame:
    options = steps.topic_options(topic, **{"isolation.level": "read_committed"})
    return steps.from_records(spark.read.format("ottla").options(**options).load(), topic)


def sessions(activity: DataFrame) -> DataFrame:
    """Sessions by the pauses between views, as far as they are over for the streams."""
    of_user = Window.partitionBy("user").orderBy("at")
    begins = (F.col("at") > F.lag("at").over(of_user) + F.expr(f"interval {steps.GAP}")).cast("int")
    numbered = activity.withColumn("begins", F.coalesce(begins, F.lit(0))).withColumn(
        "number", F.sum("begins").over(of_user.rangeBetween(Window.unboundedPreceding, Window.currentRow))
    )
    found = numbered.groupBy("user", "number").agg(
        F.min("at").alias("started"),
        F.max("at").alias("ended"),
        F.count("*").alias("views"),
        F.sum("cents").alias("cents"),
    )
    over = F.col("ended") + F.expr(f"interval {steps.GAP}") <= F.col("watermark")
    return found.crossJoin(watermark(activity)).where(over).select("user", "started", "ended", "views", "cents")


def service_minutes(metrics: DataFrame) -> DataFrame:
    """Minutes that are over for the streams."""
    over = F.col("minute") + F.expr(f"interval {steps.MINUTE}") <= F.col("watermark")
    found = steps.service_minutes(metrics)
    return found.crossJoin(watermark(metrics)).where(over).select(*found.columns)


def watermark(rows: DataFrame) -> DataFrame:
    """Where the streams are in time when they have read all of this."""
    latest = F.date_trunc("millisecond", F.max("at"))
    return rows.agg((latest - F.expr(f"interval {steps.DISORDER}")).alias("watermark"))


def comparison(name: str, stream: DataFrame, batch: DataFrame) -> Comparison:
    """Equal rows are counted on both sides: what is left over differs."""
    columns = batch.columns
    sides = stream.select(*columns, F.lit(1).alias("side")).union(batch.select(*columns, F.lit(-1).alias("side")))
    counted = sides.groupBy(*columns).agg(F.sum("side").alias("over"), F.count_if(F.col("side") < 0).alias("rows"))
    totals = counted.agg(
        F.coalesce(F.sum("rows"), F.lit(0)).alias("rows"),
        F.coalesce(F.sum(F.greatest(-F.col("over"), F.lit(0))), F.lit(0)).alias("missing"),
        F.coalesce(F.sum(F.greatest("over", F.lit(0))), F.lit(0)).alias("extra"),
    ).first()
    examples: list[str] = []
    if totals["missing"] or totals["extra"]:
        examples = [str(row) for row in counted.where("over != 0").limit(DIFFERENCES_SHOWN).collect()]
    return Comparison(name, totals["rows"], totals["missing"], totals["extra"], examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="what a stream was given (%(default)s)")
    lake = parser.parse_args().data.resolve() / "lake"
    if not all((lake / name).exists() for name in TABLES):
        raise SystemExit(f"There is no whole lake in {lake}: run run.py or streaming.py to the end first.")
    steps.make_topics()
    spark = ottla_spark.session("history", master="local[2]", config=steps.SPARK_SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    different = 0
    for found in compare(spark, lake):
        print(found, flush=True)
        for example in found.examples:
            print(f"    {example}")
        different += not found.agrees
    if different:
        raise SystemExit("The streams and the batch differ.")
    print("The streams and the batch agree to the record.")


if __name__ == "__main__":
    main()
