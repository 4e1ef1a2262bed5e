"""A single node on whatever port the system gave it becomes a cluster: others join, it stops, moves, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import ottla
from ottla.cli.free_ports import free_port
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.descriptions import Quorum
from ottla.client.settings import ClientSettings
from tests.cluster.nodes import SECONDS_MAX, Node, until

pytestmark = pytest.mark.timeout(120)

QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def quorum_of(*addresses: str) -> Quorum:
    with Cluster(ClientSettings.of(",".join(addresses))) as cluster:
        return Admin(cluster).describe_quorum()


def ports(quorum: Quorum) -> dict[int, int]:
    """Where the voters listen, as the quorum has it on record."""
    return {node_id: endpoints[0].address.port for node_id, endpoints in quorum.endpoints.items()}


def port_of(server: ottla.Server) -> int:
    return int(server.bootstrap_servers.rpartition(":")[2])


def joining(directory: Path, node_id: int, server: ottla.Server, cluster_id: str) -> Node:
    node = Node(directory / str(node_id), node_id, free_port())
    node.properties = {
        "node.id": str(node_id),
        "cluster.id": cluster_id,
        "controller.quorum.bootstrap.servers": server.bootstrap_servers,
        **QUICK,
    }
    node.start()
    return node


def write(address: str, topic: str, count: int) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=delivered)
    assert producer.flush(SECONDS_MAX) == 0
    assert not failed


def test_a_single_node_grows_stops_and_comes_back_elsewhere(tmp_path: Path) -> None:
    nodes: list[Node] = []
    try:
        with ottla.Server(data=tmp_path / "1", config=QUICK) as server:
            address = server.bootstrap_servers
            assert ports(quorum_of(address)) == {1: port_of(server)}
            admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
            cluster_id = admin.describe_cluster().result(SECONDS_MAX).cluster_id
            nodes += [joining(tmp_path, node_id, server, cluster_id) for node_id in (2, 3)]
            until(lambda: sorted(ports(quorum_of(address))) == [1, 2, 3], "all three vote")
            topic = NewTopic("grown", 3, 3, config={"min.insync.replicas": "2"})
            admin.create_topics([topic])["grown"].result(SECONDS_MAX)
            write(address, "grown", 100)
        others = [node.bootstrap_servers for node in nodes]
        until(lambda: quorum_of(*others).leader_id in (2, 3), "another one leads")
        write(others[0], "grown", 100)
        # Its config still names nobody, and it gets another port: its log knows the others, and they are told.
        with ottla.Server(data=tmp_path / "1", config=QUICK) as server:
            until(lambda: ports(quorum_of(*others))[1] == port_of(server), "the voters' record says where it is now")
            assert quorum_of(*others).leader_id in (2, 3)
            write(others[0], "grown", 100)
            described = AdminClient({"bootstrap.servers": others[0], "log_level": 0})
            until(
                lambda: all(
                    len(partition.isrs) == 3
                    for partition in described.list_topics("grown", timeout=10).topics["grown"].partitions.values()
                ),
                "it has caught up",
            )
    finally:
        for node in nodes:
            if node.is_running:
                node.kill()
