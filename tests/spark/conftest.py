"""One local Spark and one broker for all tests here, which therefore run in one process, one after another."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import ottla
from bench.tools import cache_directory
from ottla.client.admin import Admin
from ottla.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
STREAM_SECONDS_MAX = 240
TEST_SECONDS_MAX = 900
STARTS_MAX = 10
TOO_SLOW = "failed to connect back"
"""Spark gives a Python process ten seconds to start and connect, which a busy machine may not keep."""
BROKER = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "auto.create.topics.enable": False,
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 200,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.slow)
            # A session's first query starts several processes; a busy machine takes its time for them.
            item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


def connector_jars() -> list[Path]:
    """Spark's own Kafka connector, where `python -m bench.tools` could fetch it."""
    return sorted((cache_directory() / "jars" / "spark").glob("*.jar"))


def kill_session(leader: int) -> None:
    """End every process of a session with -9. Spark's workers are in groups of their own and outlive Java a while."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[3]) == leader:
                os.kill(int(entry.parent.name), signal.SIGKILL)


class Lab:
    """A broker, a Spark session, and the few things that every test does with them."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self.spark, self.bootstrap, self.directory = spark, bootstrap, directory
        self.data = Path()

    def topic(self, partitions: int = 2, name: str = "", **configs: str) -> str:
        name = name or f"t-{uuid.uuid4().hex[:10]}"
        given = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin.connect(self.bootstrap) as admin:
            admin.create_topic(name, partitions=partitions, configs=given)
        return name

    def options(self, options: dict[str, Any]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **{key: str(value) for key, value in options.items()}}

    def read(self, topic: str, format: str = "ottla", **options: Any) -> DataFrame:
        given = self.options({"subscribe": topic, **options})
        return self.spark.read.format(format).options(**given).load()

    def stream(self, topic: str, format: str = "ottla", **options: Any) -> DataFrame:
        given = self.options({"subscribe": topic, "startingOffsets": "earliest", **options})
        return self.spark.readStream.format(format).options(**given).load()

    def checkpoint(self) -> str:
        return str(self.directory / f"checkpoint-{uuid.uuid4().hex[:8]}")

    def run(self, df: DataFrame, checkpoint: str, format: str = "ottla", **options: Any) -> list[dict[str, Any]]:
        """Everything that is there now, into a sink; returns the progress of each batch."""
        query, failure = self._run(df, checkpoint, format, options)
        if failure is not None:
            raise failure
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def refusal(self, df: DataFrame, checkpoint: str = "", format: str = "noop", **options: Any) -> str:
        """The same of a stream that fails; returns with which words."""
        _, failure = self._run(df, checkpoint or self.checkpoint(), format, options)
        assert failure is not None
        return str(failure)

    def _run(self, df: DataFrame, checkpoint: str, format: str, options: dict[str, Any]) -> tuple[Any, Any]:
        given = self.options({"checkpointLocation": checkpoint, **options})
        failure = None
        for _ in range(STARTS_MAX):
            query = df.writeStream.format(format).options(**given).trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(STREAM_SECONDS_MAX)
            except StreamingQueryException as error:
                failure = error
                if TOO_SLOW not in str(error):
                    break
            else:
                return query, None
        return query, failure

    def values(self, topic: str, **options: Any) -> list[str]:
        """The values of a topic as text, sorted."""
        rows = self.read(topic, **options).selectExpr("cast(value as string) as value").collect()
        return sorted(row.value for row in rows)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    config = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.jars": ",".join(map(str, connector_jars())),
    }
    spark = session("tests", master="local[2]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[ottla.Server]:
    with ottla.Server(process=True, config=BROKER) as server:
        yield server


@pytest.fixture(scope="session")
def broker(server: ottla.Server) -> str:
    return server.bootstrap_servers


@pytest.fixture
def lab(spark: SparkSession, server: ottla.Server, tmp_path: Path) -> Lab:
    lab = Lab(spark, server.bootstrap_servers, tmp_path)
    lab.data = Path(server.data)
    return lab
