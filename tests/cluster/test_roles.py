"""Nodes that are only controllers, or only brokers."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ottla.cli.free_ports import free_port
from tests.cluster.nodes import Cluster, until


def test_controllers_of_their_own_and_brokers_that_ask_for_them(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, brokers=1, voters=1, default_replication_factor="2", min_insync_replicas="1")
    controller = cluster.nodes[1]
    controller.properties["process.roles"] = "controller"
    controller.properties["controller.listener.names"] = "PLAINTEXT"
    first, second = (cluster.add(number, free_port()) for number in (2, 3))
    del second.properties["controller.quorum.voters"]
    second.properties["controller.quorum.bootstrap.servers"] = controller.bootstrap_servers
    with cluster:
        brokers = f"{first.bootstrap_servers},{second.bootstrap_servers}"
        admin = AdminClient({"bootstrap.servers": brokers})
        until(lambda: sorted(admin.list_topics(timeout=10).brokers) == [2, 3], "both brokers are in the cluster")
        producer = Producer({"bootstrap.servers": brokers, "acks": "all"})
        producer.produce("auto-created", b"1")
        assert producer.flush(20) == 0
        controller.kill()
        producer.produce("auto-created", b"2")
        assert producer.flush(20) == 0, "brokers serve on without a controller"
        controller.start()
        assert controller.stop() == first.stop() == second.stop() == 0
