"""Sinks: what was found out goes back to topics, exactly once, for whoever listens there."""

from __future__ import annotations

import steps
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink("sessions_topic", "ottla", steps.sink_options(steps.SESSIONS))
dp.create_sink("service_minutes_topic", "ottla", steps.sink_options(steps.SERVICE_MINUTES))


@dp.append_flow(target="sessions_topic")
def sessions_out() -> DataFrame:
    return steps.as_records(spark.readStream.table("sessions"), key="user")


@dp.append_flow(target="service_minutes_topic")
def service_minutes_out() -> DataFrame:
    return steps.as_records(spark.readStream.table("service_minutes"), key="service")
