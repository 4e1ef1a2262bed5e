"""dying_driver.py BOOTSTRAP SOURCE DIRECTORY: copies a topic exactly once, by one query for each step of a commit.

Each query stops at its step, for good, and says so with a file. When the last one has, the test kills everything with
-9, driver, Java, workers and the processes that commit, as when a machine fails.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

from ottla.spark import session
from pyspark_ottla.source import DefaultSource

STEPS = ("before the decision", "after the decision", "between two commits", "after the commit")
QUERY_STARTS_MAX = 4
LOOK_SECONDS = 0.1


class StoppingSource(DefaultSource):
    """The sink that goes no further than its step."""

    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        real: Any = super().streamWriter(schema, overwrite)
        step, reached = self.options["step"], Path(self.options["reached"])

        def stop(*_: object, **__: object) -> Any:
            reached.touch()
            while True:
                signal.pause()

        class StoppingWriter(type(real)):  # type: ignore[misc]
            def commit(self, messages: Any, batchId: int) -> None:
                from pyspark_ottla import batch_progress, stream_writer

                real_end = stream_writer.end_transaction
                if step == "before the decision":
                    batch_progress.BatchProgress.decide = stop  # type: ignore[method-assign]
                elif step == "after the decision":
                    stream_writer.end_transaction = stop
                elif step == "between two commits":

                    def end_once(*given: Any, **named: Any) -> Any:
                        stream_writer.end_transaction = stop
                        return real_end(*given, **named)

                    stream_writer.end_transaction = end_once
                super().commit(messages, batchId)
                stop()

        return StoppingWriter(real._options)


def main(bootstrap: str, source: str, directory: str) -> None:
    spark = session("dying", master="local[2]")
    spark.dataSource.register(StoppingSource)
    options = {"kafka.bootstrap.servers": bootstrap}
    frame = spark.readStream.format("ottla").options(**options, subscribe=source, startingOffsets="earliest").load()
    for number, step in enumerate(STEPS):
        sink, reached = f"{source}-{number}", Path(directory, f"reached-{number}")
        given = {"topic": sink, "step": step, "reached": str(reached), "checkpointLocation": f"{directory}/{sink}"}
        writer = frame.select("key", "value").writeStream.format("stopping").options(**options, **given)
        run_until_it_stops(writer.trigger(availableNow=True), reached)
    Path(directory, "all-stopped").touch()
    signal.pause()


def run_until_it_stops(writer: Any, reached: Path) -> None:
    """A query that fails is started again: a busy machine may start a process too late for Spark."""
    for _ in range(QUERY_STARTS_MAX):
        query = writer.start()
        while query.isActive and not reached.exists():
            time.sleep(LOOK_SECONDS)
        if reached.exists():
            return
    raise SystemExit(f"{reached.name}: {query.exception()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
