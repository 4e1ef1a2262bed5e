"""Nodes that do not belong, that came back without their disk, or that are too few: each has a defined answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.cli.free_ports import free_port
from tests.cluster.nodes import Cluster, Node, until
from tests.cluster.test_replication import read_all
from tests.scenarios.brokers import BrokerProcess


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster(directory, broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="200") as running:
        running.create_topic("orders")
        yield running


def write(cluster: Cluster, count: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(first, first + count):
        producer.produce("orders", str(number).encode())
    assert producer.flush(20) == 0


def stranger(cluster: Cluster, tmp_path: Path, node_id: int, **changes: str) -> Node:
    """A node that is not among the cluster's own."""
    node = Node(tmp_path, node_id, free_port())
    node.properties = {**cluster.properties(node_id, "broker"), **changes}
    return node


def test_a_node_of_another_cluster_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    node = stranger(cluster, tmp_path, 9, **{"cluster.id": "another"})
    node.begin()
    assert node.wait() == 1
    assert "cluster" in node.log()
    assert "another" in node.log()


def test_a_directory_of_another_cluster_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as alone:
        alone.stop()
    node = stranger(cluster, tmp_path, 1, **{"process.roles": "broker,controller"})
    node.begin()
    assert node.wait() == 1
    assert "belongs to cluster" in node.log()
    assert str(node.data) in node.log()


def test_an_empty_directory_must_be_told_its_cluster(cluster: Cluster, tmp_path: Path) -> None:
    node = stranger(cluster, tmp_path, 9)
    del node.properties["cluster.id"]
    node.begin()
    assert node.wait() == 2
    assert "ottla cluster new-id" in node.log()


def test_a_second_process_with_a_live_nodes_id_gives_up(cluster: Cluster, tmp_path: Path) -> None:
    cluster.wait_in_sync("orders")
    # One of the three has the id of the active controller, and is told by others that it leads itself.
    seconds = []
    for node_id in cluster.nodes:
        seconds.append(stranger(cluster, tmp_path / str(node_id), node_id, **{"process.roles": "broker,controller"}))
        seconds[-1].begin()
    for node in seconds:
        assert node.wait() == 1
        assert f"another live broker has node.id {node.node_id}" in node.log()
    write(cluster, 10)
    cluster.wait_in_sync("orders")


def test_a_node_that_lost_its_disk_fetches_everything_anew(cluster: Cluster) -> None:
    write(cluster, 50, 100)
    cluster.wait_in_sync("orders")
    lost = cluster.nodes[2]
    lost.kill()
    shutil.rmtree(lost.data)
    lost.start()
    cluster.wait_in_sync("orders")
    for number in (1, 3):
        cluster.nodes[number].kill()
        cluster.nodes[number].start()
        cluster.wait_in_sync("orders")
    values = read_all(cluster.bootstrap_servers, "orders", 50)
    assert set(range(100, 150)) <= set(values)


def test_without_a_majority_a_start_says_who_is_missing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, initial_broker_registration_timeout_ms="1500")
    node = cluster.nodes[1]
    node.begin()
    assert node.wait() == 1
    assert "majority of the voters" in node.log()
    assert cluster.voters.split(",")[1] in node.log()


def test_brokers_serve_what_they_lead_without_a_controller(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=4) as cluster:
        cluster.create_topic("orders", partitions=4, replication=1)
        cluster.wait_in_sync("orders", 1)
        partition = cluster.leaders("orders").index(4)
        producer = Producer({"bootstrap.servers": cluster.nodes[4].bootstrap_servers, "acks": "all"})
        producer.produce("orders", b"1", partition=partition)
        assert producer.flush(10) == 0
        for number in (1, 2, 3):
            cluster.nodes[number].kill()
        producer.produce("orders", b"2", partition=partition)
        assert producer.flush(10) == 0
        for number in (1, 2, 3):
            cluster.nodes[number].launch()
        for number in (1, 2, 3):
            cluster.nodes[number].wait_ready()
        until(lambda: min(cluster.leaders("orders")) >= 0, "all partitions have leaders again")
