"""Through Spark Connect: the client has no Java, and everything works the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.free_ports import free_port
from tests.spark.conftest import Lab, kill_session
from tests.spark.test_clusters import BAD, GOOD, produce, run_program, start, wait_for
from tests.spark.test_sink import committed

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server in a process of its own."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    server = start(tmp_path, "deploy.SparkSubmit", "--class", SERVER, "--master", "local[2]", *given)
    try:
        wait_for(port, server)
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill_session(server.pid)
        server.wait()


def test_source_sink_and_json_through_spark_connect(lab: Lab, remote: str) -> None:
    source, sink = lab.topic(), lab.topic()
    produce(lab, source)
    given = (lab.bootstrap, source, sink, f"{source}-dlq", str(lab.directory))
    said = json.loads(run_program("connect_job.py", remote, *given))
    assert said.pop("kind").startswith("pyspark.sql.connect")
    assert said == {"schema": "struct<n:bigint>", "values": list(range(GOOD)), "rows": GOOD + 1}
    assert committed(lab, f"{source}-dlq") == sorted(f"bad {number}" for number in range(BAD))
