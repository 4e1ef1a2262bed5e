"""`ottla cluster ...` against real processes: replicas move, leaders move, brokers leave, and nothing is lost."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.app import run_command
from tests.cluster.nodes import Cluster, until
from tests.cluster.test_replication import Writer, check


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=4) as running:
        yield running


def ottla(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    """The output of a command that ends with this exit code."""
    written, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(said):
        try:
            ended = run_command(["cluster", *arguments, "--bootstrap", cluster.bootstrap_servers])
        except SystemExit as leaving:
            ended = leaving.code  # type: ignore[assignment]
    assert ended == code, written.getvalue() + said.getvalue()
    return written.getvalue()


def ottla_json(cluster: Cluster, *arguments: str, code: int = 0) -> Any:
    return json.loads(ottla(cluster, *arguments, "--output", "json", code=code))


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    return [list(partition.replicas) for partition in cluster._partitions(topic)]


def test_replicas_move_under_load(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    with Writer(cluster.bootstrap_servers, "orders") as writer:
        writer.more(200)
        for target in ("2,3,4", "1,2,4", "1,3,4"):
            done = ottla_json(cluster, "reassign", "orders", "--to", target)
            assert done["executed"] is True
            wanted = sorted(map(int, target.split(",")))
            assert all(sorted(entry["after"]) == wanted for entry in done["moves"])
            assert all(sorted(found) == wanted for found in replicas(cluster, "orders"))
            writer.more(50)
        assert ottla_json(cluster, "reassign", "--list") == []
    check(cluster, "orders", writer)


def test_leadership_goes_where_the_plan_says(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    for order in ("3,1,2", "2,3,1"):
        ottla(cluster, "reassign", "orders", "--replicas", order)
        until(lambda first=int(order[0]): set(cluster.leaders("orders")) == {first}, "the first replica leads")  # type: ignore[misc]
    assert ottla_json(cluster, "elect", "--all-topics") == []


def test_the_replication_factor_changes(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=2, replication=1)
    with Writer(cluster.bootstrap_servers, "orders") as writer:
        writer.more(100)
        ottla(cluster, "reassign", "orders", "--replication-factor", "3")
        cluster.wait_in_sync("orders", 3)
        writer.more()
        ottla(cluster, "reassign", "orders", "--replication-factor", "2")
        assert all(len(found) == 2 for found in replicas(cluster, "orders"))
        writer.more()
    check(cluster, "orders", writer)


def test_a_move_to_a_dead_broker_is_stopped(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    ottla(cluster, "reassign", "orders", "--to", "1,2,3")
    cluster.nodes[4].kill()
    plan = cluster.directory / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 4]}]})
    )
    ottla(cluster, "reassign", "--from-file", str(plan), "--no-wait")
    (moving,) = ottla_json(cluster, "reassign", "--list")
    assert moving["adding"] == [4]
    assert sorted(moving["replicas"]) == [1, 2, 3, 4]
    findings: dict[str, dict[str, str]] = {}

    def is_missed() -> bool:
        # It fails from the first moment on, but names the broker when the controller knows that it is gone.
        findings.update({found["check"]: found for found in ottla_json(cluster, "health", code=1)})
        return "broker 4" in findings["brokers"]["seen"]

    until(is_missed, "a dead broker is named")
    assert findings["leaders"]["health"] == "ok"
    ottla(cluster, "reassign", "--cancel")
    assert ottla_json(cluster, "reassign", "--list") == []
    assert [sorted(found) for found in replicas(cluster, "orders")] == [[1, 2, 3], [1, 2, 3]]


def test_a_broker_leaves_for_good(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    with Writer(cluster.bootstrap_servers, "orders") as writer:
        writer.more(50)
        command = [sys.executable, "-m", "ottla", "cluster", "decommission", "4", "--stop-within", "60s"]
        command += ["--bootstrap", cluster.bootstrap_servers]
        leaving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert leaving.stderr is not None
        said: list[str] = []
        reading = threading.Thread(target=lambda: said.extend(iter(leaving.stderr.readline, "")))  # type: ignore[union-attr]
        reading.start()
        until(lambda: any("stop broker 4 now" in line for line in said) or leaving.poll() is not None, "it is empty")
        assert all(4 not in found for found in replicas(cluster, "orders")), said
        assert cluster.nodes[4].stop() == 0
        assert leaving.wait(30) == 0, said
        reading.join()
        assert leaving.stdout is not None
        leaving.stdout.close()
        leaving.stderr.close()
        writer.more()
    assert [broker["id"] for broker in ottla_json(cluster, "info")["brokers"]] == [1, 2, 3]
    ottla(cluster, "health")
    ottla(cluster, "decommission", "4", code=4)
    check(cluster, "orders", writer)


def test_voters_come_and_go(cluster: Cluster) -> None:
    nodes = {node["node"]: node for node in ottla_json(cluster, "quorum")["nodes"]}
    assert [nodes[number]["role"] in ("leader", "voter") for number in (1, 2, 3, 4)] == [True, True, True, False]
    follower = next(number for number in (1, 2, 3) if nodes[number]["role"] == "voter")
    cluster.nodes[follower].stop()
    ottla(cluster, "remove-voter", str(follower))
    voters = [node["node"] for node in ottla_json(cluster, "quorum")["nodes"] if node["role"] != "observer"]
    assert sorted([*voters, follower]) == [1, 2, 3]
    cluster.nodes[follower].start()
    until(
        lambda: any(
            node["node"] == follower and node["role"] == "voter" for node in ottla_json(cluster, "quorum")["nodes"]
        ),
        "it votes again by itself",
    )
