"""connect_job.py REMOTE BOOTSTRAP SOURCE SINK LETTERS DIRECTORY: the source, the sink and JSON through Spark Connect.

A client: nothing of Java is in this process. Prints what it saw.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from ottla.spark import from_json_topic, infer_json_schema


def main(remote: str, bootstrap: str, source: str, sink: str, letters: str, directory: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap}
    stream = spark.readStream.format("ottla").options(**options, subscribe=source, startingOffsets="earliest").load()
    schema = infer_json_schema(stream)
    good = from_json_topic(stream, schema=schema, bad_rows=letters, keep=["key"])
    writer = good.selectExpr("key", "cast(n as string) as value").writeStream.format("ottla")
    query = (
        writer.options(**options, topic=sink, checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    reader = spark.read.format("ottla").options(**options, subscribe=sink)
    batch = reader.load()
    values = sorted(int(row.value) for row in batch.selectExpr("cast(value as string) as value").collect())
    batch.selectExpr("key", "value").limit(1).write.format("ottla").mode("append").options(**options, topic=sink).save()
    said = {"kind": type(spark).__module__, "schema": schema.simpleString(), "values": values}
    print(json.dumps({**said, "rows": reader.load().count()}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
