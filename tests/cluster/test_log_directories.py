"""Brokers with two directories each, of which one fails: its replicas go elsewhere, the others stay."""

from __future__ import annotations

import shutil
from pathlib import Path

from confluent_kafka import Producer

from tests.cluster.nodes import SECONDS_MAX, Cluster, until
from tests.cluster.test_replication import read_all

PARTITIONS = 4
SEGMENT_BYTES = 1 << 20
ROLLING = 1500
"""So many values of a kilobyte are more than a segment holds."""


def two_directories(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    for node in cluster.nodes.values():
        node.data = Path(",".join(str(directory) for directory in directories(cluster, node.node_id)))
    return cluster


def directories(cluster: Cluster, node_id: int) -> list[Path]:
    """The first has the metadata log too."""
    data = cluster.directory / f"node-{node_id}"
    return [data / "one", data / "two"]


def write(cluster: Cluster, partition: int, values: range) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        padded = str(value).zfill(1000).encode()
        producer.produce(
            "orders", padded, partition=partition, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failed


def test_a_directory_that_fails_takes_its_own_replicas_along_and_no_other(tmp_path: Path) -> None:
    with two_directories(tmp_path) as cluster:
        cluster.create_topic("orders", PARTITIONS, segment_bytes=str(SEGMENT_BYTES))
        cluster.wait_in_sync("orders")
        for partition in range(PARTITIONS):
            write(cluster, partition, range(partition * 10, partition * 10 + 10))

        leaders = cluster.leaders("orders")
        struck, leader = next(
            (partition, leader)
            for partition, leader in enumerate(leaders)
            if (directories(cluster, leader)[1] / f"orders-{partition}").exists()
        )
        first, second = directories(cluster, leader)
        beside = [partition for partition in range(PARTITIONS) if (first / f"orders-{partition}").exists()]
        assert beside, "new partitions go where the fewest are"
        # Files that are open stay so; the next segment cannot be made.
        shutil.rmtree(second)
        write(cluster, struck, range(100, 100 + ROLLING))

        until(lambda: leader not in cluster.isrs("orders")[struck], "the lost replica is out of sync")
        assert cluster.leaders("orders")[struck] != leader
        assert cluster.nodes[leader].is_running
        for partition in beside:
            assert leader in cluster.isrs("orders")[partition]

        cluster.nodes[leader].kill()
        cluster.nodes[leader].start()
        cluster.wait_in_sync("orders")
        assert (second / f"orders-{struck}").exists() or (first / f"orders-{struck}").exists()
        values = read_all(cluster.bootstrap_servers, "orders", PARTITIONS * 10 + ROLLING)
        assert sorted(values) == [*range(PARTITIONS * 10), *range(100, 100 + ROLLING)]


def test_a_sole_replica_in_a_directory_that_failed_has_no_leader_until_its_broker_has_it_again(tmp_path: Path) -> None:
    with two_directories(tmp_path) as cluster:
        cluster.create_topic("orders", PARTITIONS * 2, replication=1, segment_bytes=str(SEGMENT_BYTES))
        for partition in range(PARTITIONS * 2):
            write(cluster, partition, range(partition * 10, partition * 10 + 10))
        struck, leader = next(
            (partition, leader)
            for partition, leader in enumerate(cluster.leaders("orders"))
            if (directories(cluster, leader)[1] / f"orders-{partition}").exists()
        )
        _, second = directories(cluster, leader)
        unplugged = second.rename(tmp_path / "unplugged")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for _ in range(ROLLING):
            producer.produce("orders", b"0" * 1000, partition=struck)
        until(lambda: producer.poll(0) is not None and cluster.leaders("orders")[struck] == -1, "nobody leads it")
        producer.purge()
        producer.flush(SECONDS_MAX)
        assert cluster.isrs("orders")[struck] == []
        assert cluster.nodes[leader].is_running

        shutil.rmtree(second, ignore_errors=True)
        unplugged.rename(second)
        cluster.nodes[leader].kill()
        cluster.nodes[leader].start()
        until(lambda: cluster.leaders("orders")[struck] == leader, "it is led again")
        first_values = range(struck * 10, struck * 10 + 10)
        assert set(first_values) <= set(read_all(cluster.bootstrap_servers, "orders", PARTITIONS * 20))
