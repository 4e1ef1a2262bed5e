"""Replicas that diverged, leaders that slept, disks of yesterday, and nobody in sync: what was acknowledged stays."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.model.errors import ErrorCode
from ottla.wire import produce_client
from ottla.wire.batch import iterate
from ottla.wire.headers import parse_response_header
from ottla.wire.records import Record, build_batch
from ottla.wire.records import iterate as iterate_records
from tests.cluster.nodes import SECONDS_MAX, Cluster, until
from tests.cluster.test_cluster_commands import ottla, ottla_json
from tests.cluster.test_replication import read_all
from tests.scenarios.raw_client import RawClient


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster(directory, broker_session_timeout_ms="1000", broker_heartbeat_interval_ms="200") as running:
        yield running


def write(servers: str, topic: str, values: range) -> None:
    """Each is acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "error_cb": lambda _error: None})
    failed: list[object] = []
    for value in values:
        producer.produce(topic, str(value).encode(), on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert not failed


def batch(value: int) -> bytes | bytearray:
    return build_batch([Record(0, int(time.time() * 1000), None, str(value).encode(), ())])


def values_of(cluster: Cluster, node_id: int, topic: str) -> list[int]:
    """What the log files of one node hold, read when the node is in sync and nobody writes."""
    (segment,) = (cluster.nodes[node_id].data / f"{topic}-0").glob("*.log")
    data = segment.read_bytes()
    values = []
    for start, header in iterate(data):
        values += [int(record.value or b"-1") for record in iterate_records(data[start : start + header.size])]
    return values


def test_a_diverged_log_is_cut_to_what_the_leader_has(cluster: Cluster) -> None:
    cluster.create_topic("diverged")
    write(cluster.bootstrap_servers, "diverged", range(10))
    leader = cluster.leaders("diverged")[0]
    followers = [node for node in cluster.nodes.values() if node.node_id != leader]
    raw = RawClient.connect(cluster.nodes[leader].bootstrap_servers)
    for follower in followers:
        os.kill(follower.pid, signal.SIGSTOP)
    # The first one may be in an answer that is on its way to a follower; nobody fetches the others.
    codes = [raw.produce_batch("diverged", batch(value), acks=1)[0] for value in range(1000, 1005)]
    assert codes == [0] * 5
    cluster.nodes[leader].kill()
    for follower in followers:
        os.kill(follower.pid, signal.SIGCONT)
    until(lambda: cluster.leaders("diverged")[0] not in (leader, -1), "another one leads")
    write(cluster.bootstrap_servers, "diverged", range(10, 30))
    cluster.nodes[leader].start()
    cluster.wait_in_sync("diverged")
    found = [values_of(cluster, node_id, "diverged") for node_id in cluster.nodes]
    assert found[0] == found[1] == found[2]
    assert [value for value in found[0] if value < 1000] == list(range(30))
    assert 1004 not in found[0]
    raw.close()


def test_a_leader_that_slept_acknowledges_nothing(cluster: Cluster) -> None:
    cluster.create_topic("slept")
    write(cluster.bootstrap_servers, "slept", range(10))
    leader = cluster.leaders("slept")[0]
    sleeper = cluster.nodes[leader]
    awake = ",".join(node.bootstrap_servers for node in cluster.nodes.values() if node is not sleeper)
    raw = RawClient.connect(sleeper.bootstrap_servers)
    os.kill(sleeper.pid, signal.SIGSTOP)
    raw.send_frame(raw.produce_frame("slept", batch(1000), acks=-1))
    admin = AdminClient({"bootstrap.servers": awake})

    def leader_now() -> int:
        return int(admin.list_topics("slept", timeout=10).topics["slept"].partitions[0].leader)

    until(lambda: leader_now() not in (leader, -1), "another one leads")
    write(awake, "slept", range(10, 20))
    os.kill(sleeper.pid, signal.SIGCONT)
    code = produced_code(raw.receive_frame())
    assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), code
    cluster.wait_in_sync("slept")
    assert read_all(awake, "slept", 20) == list(range(20))
    raw.close()


def produced_code(frame: bytes) -> int:
    view = memoryview(frame)
    _, position = parse_response_header(0, 9, view)
    ((_, (partition,)),) = produce_client.parse_response(view, position, 9).topics
    return partition.error_code


def test_a_disk_of_yesterday_is_not_taken_for_todays(cluster: Cluster) -> None:
    """A directory of a clean stop is put back later: it says that it has everything, and has not."""
    cluster.create_topic("backup")
    write(cluster.bootstrap_servers, "backup", range(10))
    node = cluster.nodes[3]
    assert node.stop() == 0
    yesterday = node.data.with_name("yesterday")
    shutil.copytree(node.data, yesterday)
    assert (yesterday / ".kafka_cleanshutdown").exists()
    node.start()
    cluster.wait_in_sync("backup")
    write(cluster.bootstrap_servers, "backup", range(10, 40))
    node.kill()
    shutil.rmtree(node.data)
    yesterday.rename(node.data)
    node.start()
    cluster.wait_in_sync("backup")
    assert values_of(cluster, 3, "backup") == list(range(40))
    assert read_all(cluster.bootstrap_servers, "backup", 40) == list(range(40))


def test_a_removed_voter_comes_back_as_an_observer(tmp_path: Path) -> None:
    with Cluster(tmp_path, controller_quorum_auto_join_enable="false") as cluster:
        cluster.create_topic("orders")
        roles = {row["node"]: row["role"] for row in ottla_json(cluster, "quorum")["nodes"]}
        removed = next(number for number, role in roles.items() if role == "voter")
        ottla(cluster, "remove-voter", str(removed))
        cluster.nodes[removed].kill()
        cluster.nodes[removed].start()
        until(
            lambda: {row["node"]: row["role"] for row in ottla_json(cluster, "quorum")["nodes"]}[removed] == "observer",
            "it follows the quorum and does not vote",
        )
        cluster.wait_in_sync("orders")
        write(cluster.bootstrap_servers, "orders", range(10))
        assert read_all(cluster.bootstrap_servers, "orders", 10) == list(range(10))


def test_without_an_in_sync_replica_a_partition_waits_unless_told_otherwise(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=5, voters=3) as cluster:
        create_on(cluster, "safe", [4, 5], {"min.insync.replicas": "1"})
        create_on(cluster, "bold", [4, 5], {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"})
        for topic in ("safe", "bold"):
            cluster.wait_in_sync(topic, 2)
            write(cluster.bootstrap_servers, topic, range(10))
        cluster.nodes[5].kill()
        until(lambda: cluster.isrs("safe") == cluster.isrs("bold") == [[4]], "broker 4 is alone in sync")
        for topic in ("safe", "bold"):
            write(cluster.bootstrap_servers, topic, range(10, 20))
        cluster.nodes[4].kill()
        cluster.nodes[5].start()
        until(lambda: cluster.leaders("bold") == [5], "broker 5 leads where it may")
        assert cluster.leaders("safe") == [-1]
        assert_unavailable(cluster, "safe")
        write(cluster.bootstrap_servers, "bold", range(20, 30))
        cluster.nodes[4].start()
        for topic in ("safe", "bold"):
            cluster.wait_in_sync(topic, 2)
        assert read_all(cluster.bootstrap_servers, "safe", 20) == list(range(20))
        assert read_all(cluster.bootstrap_servers, "bold", 20) == [*range(10), *range(20, 30)]
        assert values_of(cluster, 4, "bold") == values_of(cluster, 5, "bold")


def create_on(cluster: Cluster, topic: str, replicas: list[int], config: dict[str, str]) -> None:
    with cluster.admin() as admin:
        new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config=config)
        admin.create_topics([new])[topic].result(SECONDS_MAX)


def assert_unavailable(cluster: Cluster, topic: str) -> None:
    """A client that asks hears that there is no leader; it is neither served nor left waiting in silence."""
    servers = cluster.nodes[1].bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "x", "error_cb": lambda _error: None})
    try:
        with pytest.raises(KafkaException):
            consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=1)
    finally:
        consumer.close()
    raw = RawClient.connect(cluster.nodes[5].bootstrap_servers)
    assert raw.produce_batch(topic, batch(1000))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    raw.close()
