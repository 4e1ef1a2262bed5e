"""dying_driver.py BOOTSTRAP SOURCE SINK CHECKPOINT STEP: copies a topic exactly once, and is killed at a step.

Everything is killed with -9, driver, Java and the process that commits, as when a machine fails.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ottla.spark import session
from pyspark_ottla.source import DefaultSource

BOOTSTRAP, SOURCE, SINK, CHECKPOINT, STEP = sys.argv[1:]


class DyingSource(DefaultSource):
    """The sink whose commit does not survive."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        real: Any = super().streamWriter(schema, overwrite)
        step = self.options["step"]

        class DyingWriter(type(real)):  # type: ignore[misc]
            def commit(self, messages: Any, batchId: int) -> None:
                from pyspark_ottla import batch_progress, stream_writer

                def die(*_: object, **__: object) -> Any:
                    # Workers have a process group of their own; the session is the driver's.
                    os.killpg(os.getsid(0), signal.SIGKILL)
                    os.kill(os.getpid(), signal.SIGKILL)

                if step == "before the decision":
                    batch_progress.BatchProgress.decide = die  # type: ignore[method-assign]
                elif step == "after the decision":
                    stream_writer.end_transaction = die
                super().commit(messages, batchId)
                if step != "never":
                    die()

        return DyingWriter(real._options)


def main() -> None:
    spark = session("dying", master="local[2]")
    spark.dataSource.register(DyingSource)
    options = {"kafka.bootstrap.servers": BOOTSTRAP}
    frame = spark.readStream.format("ottla").options(**options, subscribe=SOURCE, startingOffsets="earliest").load()
    writer = frame.select("key", "value").writeStream.format("dying").options(**options, topic=SINK, step=STEP)
    query = writer.option("checkpointLocation", CHECKPOINT).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


main()
