"""A Spark session that obeys: FORMAT ADDRESS WORK_DIRECTORY JARS. Answers each line of stdin with a line of JSON.

    batch TOPIC ROWS            rows/s of a batch read into noop
    stream TOPIC ROWS           rows/s of a stream with AvailableNow into noop
    write TOPIC ROWS DELIVERY   rows/s of a stream from Parquet into a topic
    small TOPIC ROWS BATCHES    milliseconds of a micro-batch of so many rows into noop, one right after the other
    plan TOPIC PARTITIONS       seconds to plan a batch read, until each task is known

FORMAT is `kafka`, Spark's own connector from JARS, or `ottla`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.spark import session

STREAM_S = 300
FILES = 4
VALUE = "rpad(cast(id as string), 100, 'abcdefghij')"
SMALL_WARM_UP = 10
"""Micro-batches that are not counted."""


class Job:
    """One session."""

    def __init__(self, format: str, address: str, work: Path, jars: str) -> None:
        config = {"spark.local.dir": str(work), "spark.driver.memory": "3g", "spark.jars": jars}
        self._spark = session("bench", master="local[2]", config=config)
        self._spark.sparkContext.setLogLevel("ERROR")
        self._format, self._address, self._work, self._checkpoints = format, address, work, 0

    def batch(self, topic: str, rows: str) -> dict[str, float]:
        began = time.perf_counter()
        self._reader(self._spark.read, topic).load().write.format("noop").mode("overwrite").save()
        return {"rows_s": int(rows) / (time.perf_counter() - began)}

    def stream(self, topic: str, rows: str) -> dict[str, float]:
        frame = self._reader(self._spark.readStream, topic).load()
        return self._run(frame.writeStream.format("noop"), int(rows))

    def write(self, topic: str, rows: str, delivery: str) -> dict[str, float]:
        source = self._work / f"source-{rows}"
        if not source.exists():
            table = self._spark.range(0, int(rows), 1, FILES)
            table.selectExpr(
                "cast(cast(id as string) as binary) as key", f"cast({VALUE} as binary) as value"
            ).write.parquet(str(source))
        frame = self._spark.readStream.schema("key binary, value binary").parquet(str(source))
        writer = frame.writeStream.format(self._format).option("kafka.bootstrap.servers", self._address)
        if self._format == "ottla":
            writer = writer.option("delivery", delivery)
        return self._run(writer.option("topic", topic), int(rows))

    def small(self, topic: str, rows: str, batches: str) -> dict[str, float]:
        frame = self._reader(self._spark.readStream, topic).option("maxOffsetsPerTrigger", rows).load()
        query = self._started(frame.writeStream.format("noop").trigger(processingTime="0 seconds"))
        times: dict[int, float] = {}
        deadline = time.monotonic() + STREAM_S
        try:
            while len(times) < SMALL_WARM_UP + int(batches):
                if time.monotonic() > deadline or not query.isActive:
                    raise TimeoutError(f"only {len(times)} micro-batches ran: {query.exception()}")
                time.sleep(0.05)
                for progress in query.recentProgress:
                    if progress["numInputRows"]:
                        times[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        finally:
            query.stop()
        counted = [times[batch] for batch in sorted(times)][SMALL_WARM_UP:]
        return {"ms": statistics.median(counted)}

    def plan(self, topic: str, partitions: str) -> dict[str, float]:
        began = time.perf_counter()
        frame = self._reader(self._spark.read, topic).load()
        planned = frame._jdf.queryExecution().toRdd().getNumPartitions()
        seconds = time.perf_counter() - began
        if planned != int(partitions):
            raise ValueError(f"{planned} tasks were planned for {partitions} partitions")
        return {"seconds": seconds}

    def _reader(self, reader: Any, topic: str) -> Any:
        given = {"kafka.bootstrap.servers": self._address, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format(self._format).options(**given)

    def _started(self, writer: Any) -> Any:
        self._checkpoints += 1
        return writer.option("checkpointLocation", str(self._work / f"checkpoint-{self._checkpoints}")).start()

    def _run(self, writer: Any, rows: int) -> dict[str, float]:
        began = time.perf_counter()
        query = self._started(writer.trigger(availableNow=True))
        if not query.awaitTermination(STREAM_S):
            query.stop()
            raise TimeoutError(f"the stream did not end within {STREAM_S} s")
        seconds = time.perf_counter() - began
        seen = sum(progress["numInputRows"] for progress in query.recentProgress)
        if seen != rows:
            raise ValueError(f"the stream had {seen} rows of {rows}")
        return {"rows_s": rows / seconds}


def main() -> None:
    job = Job(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    for line in sys.stdin:
        command, *given = line.split()
        take: Callable[..., dict[str, float]] = getattr(job, command)
        try:
            answer: dict[str, object] = dict(take(*given))
        except Exception as failure:
            answer = {"error": f"{type(failure).__name__}: {str(failure).strip().splitlines()[0][:160]}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
