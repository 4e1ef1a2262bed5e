"""cluster_job.py MASTER BOOTSTRAP SOURCE SINK LETTERS DIRECTORY: a driver whose executors do not live long.

Reads a topic of JSON in a batch, then copies it exactly once, bad rows to LETTERS. When the first task has written its
rows its Python process is killed with -9; when the second one has, its whole executor is. A second query has a task
that never ends, which speculation has to overtake. Prints what the batch saw as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from ottla.spark import from_json_topic, session
from pyspark_ottla.source import DefaultSource

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.speculation": "true",
    "spark.speculation.interval": "500ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "5s",
}
START_AGAIN = ("failed to connect back", "was aborted before it could be committed")
"""The first comes of a busy machine; the second is what a speculative copy may do, and says to start again."""
STARTS_MAX = 6


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@udf(StringType())
def command_of_executor(value):  # type: ignore[no-untyped-def]  # Spark would take types as a wish for another kind
    java = parent_of(os.getppid())
    return Path(f"/proc/{java}/cmdline").read_text()


class UnluckySource(DefaultSource):
    """The sink whose tasks meet with something when they have written their rows, each once."""

    @classmethod
    def name(cls) -> str:
        return "unlucky"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        real: Any = super().streamWriter(schema, overwrite)
        marks, fates = Path(self.options["marks"]), self.options["fates"].split(",")

        def meet(fate: str) -> None:
            try:
                (marks / fate).touch(exist_ok=False)
            except FileExistsError:
                return
            while fate == "straggles":
                signal.pause()
            if fate == "executor-dies":
                os.kill(parent_of(os.getppid()), signal.SIGKILL)
            if fate != "lives":
                os.kill(os.getpid(), signal.SIGKILL)

        class UnluckyWriter(type(real)):  # type: ignore[misc]
            def write(self, iterator: Any) -> Any:
                from pyspark import TaskContext

                from ottla.client.transactional_writer import TransactionalWriter

                context = TaskContext.get()
                assert context is not None
                fate, note = fates[context.partitionId()], TransactionalWriter.note

                def unlucky(*given: Any, **named: Any) -> None:
                    # Letters have a note of their own, in a process of their own.
                    meet(fate)
                    note(*given, **named)

                TransactionalWriter.note = unlucky  # type: ignore[method-assign]
                try:
                    return super().write(iterator)
                finally:
                    TransactionalWriter.note = note  # type: ignore[method-assign]

        return UnluckyWriter(real._options)


def run(start: Callable[[], Any]) -> None:
    for attempt in range(STARTS_MAX):
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if attempt + 1 == STARTS_MAX or not any(words in str(error) for words in START_AGAIN):
                raise
        else:
            return


def main(master: str, bootstrap: str, source: str, sink: str, letters: str, directory: str) -> None:
    spark = session("cluster", master=master, config=SETTINGS)
    spark.dataSource.register(UnluckySource)
    options = {"kafka.bootstrap.servers": bootstrap}
    batch = spark.read.format("ottla").options(**options, subscribe=source).load()
    rows = batch.select("offset", command_of_executor("value").alias("command")).collect()
    on_executors = all("CoarseGrainedExecutorBackend" in row.command for row in rows)

    def copy(fates: str) -> Any:
        frame = spark.readStream.format("ottla").options(**options, subscribe=source, startingOffsets="earliest").load()
        good = from_json_topic(frame, schema="n bigint not null", bad_rows=f"{letters}-{fates[:4]}")
        given = {"topic": f"{sink}-{fates[:4]}", "fates": fates, "marks": directory}
        writer = good.selectExpr("cast(n as string) as value").writeStream.format("unlucky").options(**options, **given)
        return writer.option("checkpointLocation", f"{directory}/{fates}").trigger(availableNow=True).start()

    for fates in ("worker-dies,executor-dies", "lives,straggles"):
        run(lambda fates=fates: copy(fates))  # type: ignore[misc]
    print(json.dumps({"rows": len(rows), "on_executors": on_executors}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
