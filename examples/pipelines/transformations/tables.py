"""Streaming tables: what the topics hold, as it came, and then clean, with a table of rejects."""

from __future__ import annotations

import steps
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="Every record of the topics, as it came")
def records() -> DataFrame:
    options = steps.topic_options(steps.ACTIVITY, steps.METRICS)
    records = spark.readStream.format("ottla").options(**options).load()
    return records.select("topic", "partition", "offset", "timestamp", "key", "value")


@dp.table(comment="Page views that can be used")
def activity() -> DataFrame:
    return steps.clean(spark.readStream.table("records"), steps.ACTIVITY)


@dp.table(comment="Requests that services answered")
def metrics() -> DataFrame:
    return steps.clean(spark.readStream.table("records"), steps.METRICS)


@dp.table(comment="Records that cannot be used, and why")
def rejected() -> DataFrame:
    # One flow for both: two flows that append to one table of files would get in each other's way.
    return steps.rejected(spark.readStream.table("records"))
