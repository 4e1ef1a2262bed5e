"""`ottla serve --brokers 3` and `ottla.Server(brokers=3)`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import ottla
from ottla.cli.cluster_plan import PlannedBroker
from ottla.cli.serve_cluster import Child
from tests.cluster.nodes import until


@contextlib.contextmanager
def supervisor(data: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where its brokers are."""
    command = [sys.executable, "-m", "ottla", "serve", "--brokers", "3", "--port", "0", "--data", str(data), *options]
    with open(data.with_suffix(".log"), "a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "ready" in line, data.with_suffix(".log").read_text()
        yield process, line.split()[-1]
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        process.stdout.close()


def children(process: subprocess.Popen[str]) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def broker_ids(bootstrap_servers: str) -> list[int]:
    return sorted(AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=10).brokers)


def test_three_brokers_start_serve_and_stop(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    started = time.monotonic()
    with supervisor(data) as (process, bootstrap_servers):
        assert time.monotonic() - started < 10
        assert len(bootstrap_servers.split(",")) == 3
        until(lambda: broker_ids(bootstrap_servers) == [1, 2, 3], "all brokers are in the cluster")
        producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
        producer.produce("auto-created", b"1")
        assert producer.flush(20) == 0
        process.send_signal(signal.SIGTERM)
        stopping = time.monotonic()
        assert process.wait(20) == 0
        assert time.monotonic() - stopping < 10
    assert sorted(path.name for path in data.iterdir()) == ["broker-1", "broker-2", "broker-3", "cluster.properties"]
    assert all((data / f"broker-{number}" / ".kafka_cleanshutdown").exists() for number in (1, 2, 3))
    with supervisor(data) as (_, bootstrap_servers):
        topics = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=10).topics
        assert len(topics["auto-created"].partitions[0].replicas) == 3


def test_a_broker_that_dies_is_started_again(tmp_path: Path) -> None:
    with supervisor(tmp_path / "cluster") as (process, bootstrap_servers):
        before = children(process)
        assert len(before) == 3
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(set(children(process)) - set(before)) == 1, "another process is there")
        until(lambda: broker_ids(bootstrap_servers) == [1, 2, 3], "all brokers are back")
        assert "it is started again" in (tmp_path / "cluster.log").read_text()


def test_no_broker_outlives_its_supervisor(tmp_path: Path) -> None:
    with supervisor(tmp_path / "cluster") as (process, _):
        orphans = children(process)
        process.kill()
        process.wait()
        until(lambda: not any(is_alive(pid) for pid in orphans), "the brokers have stopped by themselves", 30)


def test_a_broker_that_cannot_start_ends_the_others(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--brokers", "3", "--port", "0", "--data", str(tmp_path / "c")]
    done = subprocess.run(
        [*command, "--set", "log.retention.ms=nonsense"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "log.retention.ms" in done.stderr


def test_a_cluster_for_tests(ottla_cluster: ottla.Server) -> None:
    producer = Producer({"bootstrap.servers": ottla_cluster.bootstrap_servers, "acks": "all"})
    producer.produce("auto-created", b"1")
    assert producer.flush(20) == 0


def test_a_cluster_inside_a_program() -> None:
    with ottla.Server(brokers=3) as server:
        assert broker_ids(server.bootstrap_servers) == [1, 2, 3]
        data = server.data
    assert not data.exists()


def failure(data: Path, *options: str) -> tuple[int, list[str]]:
    """Exit code and lines of a start that fails."""
    command = [sys.executable, "-m", "ottla", "serve", "--brokers", "3", "--data", str(data), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.splitlines()


def test_a_mistake_is_said_once_and_not_by_each_broker(tmp_path: Path) -> None:
    code, (line,) = failure(tmp_path / "cluster", "--port", "0", "--set", "no.such.key=1")
    assert (code, "no.such.key" in line) == (2, True)
    assert not (tmp_path / "cluster").exists()
    with ottla.Server() as other:
        port = other.bootstrap_servers.rpartition(":")[2]
        code, (line,) = failure(tmp_path / "cluster", "--port", port)
        assert (code, f"127.0.0.1:{port}" in line) == (1, True)
        single = [
            sys.executable,
            "-m",
            "ottla",
            "serve",
            "--port",
            "0",
            "--data",
            str(tmp_path),
            "--metrics-port",
            port,
        ]
        done = subprocess.run(single, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, f"metrics port {port}" in done.stderr) == (1, True)


def test_the_addresses_of_brokers_on_ipv6_can_be_handed_to_a_client() -> None:
    assert Child(PlannedBroker(1, "data", "::1", 9092, {}), ()).address == "[::1]:9092"


def test_whoever_collects_metrics_finds_them_at_the_address_that_was_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--data", str(tmp_path), "--port", "0"]
    command += ["--metrics-port", "0", "--metrics-host", "localhost"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert broker.stdout is not None
        said = ""
        for line in broker.stdout:
            said += line
            if "ready" in line:
                break
        (address,) = re.findall(r"http://localhost:[0-9]+", said)
        with urllib.request.urlopen(f"{address}/readyz", timeout=10) as answer:
            assert answer.status == 200
    finally:
        broker.terminate()
        broker.communicate(timeout=30)
