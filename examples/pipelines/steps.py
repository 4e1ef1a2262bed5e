"""The steps that the declarative pipeline, the plain streams and the batch job have in common.

Each takes a data frame and returns one, so the same line cleans a stream and a history. Times are UTC: the settings in
`SPARK_SETTINGS` see to that wherever these steps run. Steps of the declarative pipeline use `select` and `where` only:
most other methods look at the table at once, and while a pipeline is being defined its tables are not there yet.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ACTIVITY, METRICS = "activity", "metrics"
SESSIONS, SERVICE_MINUTES = "sessions", "service-minutes"
PARTITIONS = 2

GAP = "30 minutes"
"""A user who does nothing for longer begins a new session."""
DISORDER = "10 minutes"
"""How much later than others a record may come and still count."""
MINUTE = "1 minute"

SPARK_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}

UNREADABLE = "unreadable"
FIELDS = {
    ACTIVITY: {"user": "string", "page": "string", "at": "timestamp", "cents": "bigint"},
    METRICS: {"service": "string", "at": "timestamp", "ms": "bigint", "status": "int"},
}
OUTPUT_SCHEMAS = {
    SESSIONS: "user string, started timestamp, ended timestamp, views bigint, cents bigint",
    SERVICE_MINUTES: "service string, minute timestamp, requests bigint, errors bigint, ms_total bigint, ms_max bigint",
}
WHERE_FROM = ("topic", "partition", "offset")
"""Kept with every row, so that each can be found in its topic again."""


def bootstrap() -> str:
    return os.environ.get("OTTLA_BOOTSTRAP", "127.0.0.1:9092")


def topic_options(*topics: str, **options: str) -> dict[str, str]:
    """To read topics from their beginning."""
    brokers = {"kafka.bootstrap.servers": bootstrap(), "subscribe": ",".join(topics)}
    return {**brokers, "startingOffsets": "earliest", **options}


def sink_options(topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap(), "topic": topic}


def _value() -> Column:
    return F.col("value").cast("string")


def _fields(topic: str) -> Column:
    """What a value says, by the schema of its topic."""
    schema = ", ".join(f"{name} {kind}" for name, kind in {**FIELDS[topic], UNREADABLE: "string"}.items())
    return F.from_json(_value(), schema, {"columnNameOfCorruptRecord": UNREADABLE})


def _reason(topic: str) -> Column:
    """The first rule that a record breaks; null if it can be used."""
    who, number = ("user", "cents") if topic == ACTIVITY else ("service", "ms")
    fields = _fields(topic)
    return (
        F.when(_value().isNull() | fields[UNREADABLE].isNotNull(), "cannot be read")
        .when(fields[who].isNull(), f"names no {who}")
        .when(fields["at"].isNull(), "has no time")
        .when(~F.coalesce(fields[number] >= 0, F.lit(False)), f"has no {number}, or fewer than 0")
    )


def clean(records: DataFrame, topic: str) -> DataFrame:
    """Records of a topic that can be used, with the day that a lake may be cut by."""
    good = records.where((F.col("topic") == topic) & _reason(topic).isNull())
    read = good.select(*WHERE_FROM, _fields(topic).alias("fields"))
    return read.select(*WHERE_FROM, *(f"fields.{name}" for name in FIELDS[topic]), F.to_date("fields.at").alias("day"))


def rejected(records: DataFrame) -> DataFrame:
    """Records of both topics that cannot be used, as they were, and why."""
    reason = F.when(F.col("topic") == ACTIVITY, _reason(ACTIVITY)).when(F.col("topic") == METRICS, _reason(METRICS))
    return records.select(*WHERE_FROM, _value().alias("value"), reason.alias("reason")).where("reason is not null")


def service_minutes(metrics: DataFrame) -> DataFrame:
    """Requests, errors and milliseconds of each service in each minute."""
    return (
        metrics.withWatermark("at", DISORDER)
        .groupBy("service", F.window("at", MINUTE))
        .agg(
            F.count("*").alias("requests"),
            F.count_if(F.col("status") >= 500).alias("errors"),
            F.sum("ms").alias("ms_total"),
            F.max("ms").alias("ms_max"),
        )
        .select("service", F.col("window.start").alias("minute"), "requests", "errors", "ms_total", "ms_max")
    )


def as_records(rows: DataFrame, key: str) -> DataFrame:
    """Rows as JSON, keyed by a column."""
    value = F.to_json(F.struct("*"), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})
    return rows.select(F.col(key).alias("key"), value.alias("value"))


def from_records(records: DataFrame, topic: str) -> DataFrame:
    """The rows that `as_records` wrote to a topic."""
    return records.select(F.from_json(_value(), OUTPUT_SCHEMAS[topic]).alias("row")).select("row.*")


def make_topics() -> None:
    """Make the topics that are missing; end with a clear word if there is no broker."""
    from ottla.client.admin import Admin
    from ottla.client.errors import AlreadyExistsError, ClientError

    try:
        with Admin.connect(bootstrap()) as admin:
            for topic in (ACTIVITY, METRICS, SESSIONS, SERVICE_MINUTES):
                try:
                    admin.create_topic(topic, partitions=PARTITIONS)
                except AlreadyExistsError:
                    continue
    except ClientError as error:
        raise SystemExit(f"No broker can be used: {error}\nThe variable OTTLA_BOOTSTRAP names the brokers.") from None
