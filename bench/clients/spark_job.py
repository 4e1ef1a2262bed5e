"""A Spark session that obeys: FORMAT ADDRESS WORK_DIRECTORY JARS. Answers each line of stdin with a line of JSON.

    first TOPIC ROWS      seconds from the start of the session to the end of its first query
    batch TOPIC ROWS      rows/s of a batch read into noop
    stream TOPIC ROWS     rows/s of a stream with AvailableNow into noop
    write TOPIC ROWS DELIVERY   rows/s of a stream from Parquet into a topic

FORMAT is `kafka`, Spark's own connector from JARS, or `ottla`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.spark import session

STREAM_S = 100
VALUE = "rpad(cast(id as string), 100, 'abcdefghij')"


class Job:
    """One session."""

    def __init__(self, format: str, address: str, work: Path, jars: str) -> None:
        self._began = time.perf_counter()
        config = {"spark.local.dir": str(work), "spark.driver.memory": "3g", "spark.jars": jars}
        self._spark = session("bench", master="local[2]", config=config)
        self._spark.sparkContext.setLogLevel("ERROR")
        self._format, self._address, self._work, self._checkpoints = format, address, work, 0

    def first(self, topic: str, rows: str) -> dict[str, float]:
        self.batch(topic, rows)
        return {"seconds": time.perf_counter() - self._began}

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
            table = self._spark.range(0, int(rows), 1, 4)
            table.selectExpr(
                "cast(cast(id as string) as binary) as key", f"cast({VALUE} as binary) as value"
            ).write.parquet(str(source))
        frame = self._spark.readStream.schema("key binary, value binary").parquet(str(source))
        writer = frame.writeStream.format(self._format).option("kafka.bootstrap.servers", self._address)
        if self._format == "ottla":
            writer = writer.option("delivery", delivery)
        return self._run(writer.option("topic", topic), int(rows))

    def _reader(self, reader: Any, topic: str) -> Any:
        given = {"kafka.bootstrap.servers": self._address, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format(self._format).options(**given)

    def _run(self, writer: Any, rows: int) -> dict[str, float]:
        self._checkpoints += 1
        checkpoint = str(self._work / f"checkpoint-{self._checkpoints}")
        began = time.perf_counter()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
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
