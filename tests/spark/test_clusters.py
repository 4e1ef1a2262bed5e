"""On a Spark cluster with a master and two workers: what executors do, and what becomes of it when they die."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from ottla.cli.free_ports import free_port
from ottla.client.deadline import Deadline
from ottla.spark.interpreter import worker_python
from ottla.spark.java import java_home
from tests.spark.conftest import STARTS_MAX, TOO_SLOW, Lab, kill_session
from tests.spark.test_sink import committed

JOB_SECONDS_MAX = 700
START_MS_MAX = 120_000
GOOD, BAD = 40, 6


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each, all in processes of their own."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    place = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    started = [start(tmp_path, "deploy.master.Master", *place)]
    try:
        wait_for(port, started[0])
        for number in range(2):
            # Spark makes a speculative copy of a task only on another host.
            host = f"127.0.0.{2 + number}"
            given = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / host), "--webui-port", "0")
            started.append(start(tmp_path, "deploy.worker.Worker", "--host", host, *given, address, host=host))
        yield address
    finally:
        for process in started:
            kill_session(process.pid)
            process.wait()


def start(directory: Path, name: str, *arguments: str, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
    """One of Spark's own programs, in a session of its own."""
    home = Path(pyspark.__file__).parent
    java = java_home()
    env = {
        **os.environ,
        **({} if java is None else {"JAVA_HOME": str(java)}),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": worker_python("local"),
    }
    with (directory / "daemons").open("ab") as output:
        return subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.{name}", *arguments],
            start_new_session=True,
            env=env,
            stdout=output,
            stderr=output,
        )


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = Deadline(START_MS_MAX)
    while not deadline.passed() and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
    pytest.fail(f"nothing listens at port {port}; the process ended with {process.poll()}")


def test_executors_that_die_and_tasks_that_straggle_double_and_lose_nothing(lab: Lab, master: str) -> None:
    source = lab.topic()
    produce(lab, source)
    for kind in ("work", "live"):
        lab.topic(name=f"{source}-sink-{kind}")
    given = (source, f"{source}-sink", f"{source}-dlq", str(lab.directory))
    said = run_program("cluster_job.py", master, lab.bootstrap, *given)
    assert json.loads(said) == {"rows": GOOD + BAD, "on_executors": True}
    marks = {mark.name for mark in lab.directory.iterdir()}
    assert {"worker-dies", "executor-dies", "lives", "straggles"} <= marks
    for kind in ("work", "live"):
        assert committed(lab, f"{source}-sink-{kind}") == sorted(map(str, range(GOOD)))
        assert committed(lab, f"{source}-dlq-{kind}") == sorted(f"bad {number}" for number in range(BAD))


def produce(lab: Lab, topic: str) -> None:
    producer = Producer({"bootstrap.servers": lab.bootstrap, "log_level": 0})
    values = [json.dumps({"n": number}) for number in range(GOOD)] + [f"bad {number}" for number in range(BAD)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    producer.flush()


def run_program(name: str, *arguments: str) -> str:
    """What a driver in a process of its own prints last. A busy machine may start its processes too late for Spark."""
    for _ in range(STARTS_MAX):
        command = [sys.executable, str(Path(__file__).parent / name), *arguments]
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            said, errors = process.communicate(timeout=JOB_SECONDS_MAX)
        finally:
            kill_session(process.pid)
            process.wait()
        if process.returncode == 0 or TOO_SLOW not in errors:
            break
    assert process.returncode == 0, errors[-5000:]
    return said.strip().splitlines()[-1]
