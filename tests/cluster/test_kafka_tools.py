"""Apache Kafka's own tools work against a cluster of three, and its verifiable clients notice nothing of failures."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from ottla.cli.free_ports import free_port
from tests.clients.kafka_tools import KafkaTools, find_kafka_tools
from tests.cluster.nodes import Cluster, Node, until

TOOL_SECONDS_MAX = 60
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("kafka-tools-cluster")]

TOPICS = "org.apache.kafka.tools.TopicCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
VERIFY_REPLICAS = "org.apache.kafka.tools.ReplicaVerificationTool"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Brokers 4 and 5 do not vote: both may go and the rest goes on."""
    config = {"metadata_log_max_record_bytes_between_snapshots": "1000", "auto_leader_rebalance_enable": "false"}
    with Cluster(tmp_path_factory.mktemp("kafka-tools"), brokers=5, voters=3, **config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(cluster: Cluster) -> KafkaTools:
    return find_kafka_tools(cluster.bootstrap_servers)


class Tool:
    """A tool that runs for a while, and what it has said so far."""

    def __init__(self, tools: KafkaTools, path: Path, main: str, *arguments: str) -> None:
        command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{tools.jars}/*", main, *arguments]
        self._path = path
        with path.open("w") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def whole(self) -> list[str]:
        """When it has ended."""
        assert self._process.wait(TOOL_SECONDS_MAX) == 0, self.lines()[-5:]
        return self.lines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def test_the_quorum_is_described_by_brokers_and_by_controllers(tools: KafkaTools, cluster: Cluster) -> None:
    controllers = ("--bootstrap-controller", cluster.nodes[2].bootstrap_servers)
    status = tools.run(QUORUM, *controllers, "describe", "--status")
    assert f"ClusterId:              {cluster.cluster_id}" in status
    voters = json.loads(status.partition("CurrentVoters:")[2].splitlines()[0])
    assert [(voter["id"], voter["endpoints"]) for voter in voters] == [
        (number, [f"PLAINTEXT://{cluster.nodes[number].bootstrap_servers}"]) for number in (1, 2, 3)
    ]
    replication = tools.ask(QUORUM, "describe", "--replication")
    roles = sorted(line.split()[-1] for line in replication.splitlines()[1:])
    assert roles == ["Follower", "Follower", "Leader", "Observer", "Observer"]
    features = tools.ask("org.apache.kafka.tools.FeatureCommand", "describe")
    assert re.search(
        r"kraft.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1", features
    )


def test_a_controller_is_added_and_removed(tools: KafkaTools, cluster: Cluster, tmp_path: Path) -> None:
    node = Node(tmp_path / "node-9", 9, free_port())
    node.properties = {
        "node.id": "9",
        "cluster.id": cluster.cluster_id,
        "controller.quorum.bootstrap.servers": cluster.bootstrap_servers,
        "controller.quorum.auto.join.enable": "false",
    }
    node.start()
    try:
        config = tmp_path / "controller.properties"
        listeners = f"listeners=PLAINTEXT://{node.bootstrap_servers}\ncontroller.listener.names=PLAINTEXT\n"
        config.write_text(f"node.id=9\nprocess.roles=broker,controller\nlog.dirs={node.data}\n{listeners}")
        added = tools.ask(QUORUM, "--command-config", str(config), "add-controller")
        found = re.search(r"Added controller 9 with directory id (\S+) and endpoints: PLAINTEXT://\S+", added)
        assert found is not None, added
        removed = tools.ask(QUORUM, "remove-controller", "-i", "9", "-d", found[1])
        assert f"KRaft controller 9 with directory id {found[1]}" in removed
    finally:
        node.stop()


def test_the_metadata_and_its_snapshots_are_readable(tools: KafkaTools, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("many", 12)
    directory = cluster.nodes[1].data / "__cluster_metadata-0"
    until(lambda: any(directory.glob("*.checkpoint")), "a snapshot is taken")
    files = []
    # The next snapshot may delete them at any time; a copy stays.
    for file in [*sorted(directory.glob("*.log")), *sorted(directory.glob("*.checkpoint"))]:
        with contextlib.suppress(FileNotFoundError):
            files.append(Path(shutil.copy(file, tmp_path)))
    dumped = tools.run(DUMP, "--cluster-metadata-decoder", "--files", ",".join(str(file) for file in files))
    assert "isvalid: false" not in dumped
    for record in ("SnapshotHeader", "SnapshotFooter", 'KRaftVersion {"version":0,"kRaftVersion":1}', "KRaftVoters"):
        assert record in dumped
    assert '"type":"REGISTER_BROKER_RECORD"' in dumped


def test_replicas_are_moved_and_preferred_leaders_elected(tools: KafkaTools, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("moved", 2)
    old = cluster.leaders("moved")
    new = [next(number for number in (1, 2, 3) if number != leader) for leader in old]
    moves = [
        {"topic": "moved", "partition": index, "replicas": [new[index], leader]} for index, leader in enumerate(old)
    ]
    plan = tmp_path / "moves.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    how = ("--reassignment-json-file", str(plan))
    started = tools.ask(REASSIGN, *how, "--execute", "--throttle", "9000000")
    assert "Successfully started partition reassignments for moved-0,moved-1" in started
    until(lambda: cluster.isrs("moved") == [sorted(pair) for pair in zip(new, old, strict=True)], "they have moved")
    verified = tools.ask(REASSIGN, *how, "--verify")
    assert verified.count("is completed") == 2
    assert "Clearing topic-level throttles on topic moved" in verified
    assert cluster.leaders("moved") == old
    elected = tools.ask(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in elected
    assert cluster.leaders("moved") == new


def test_an_unclean_leader_is_elected(tools: KafkaTools, cluster: Cluster) -> None:
    """Broker 4 leaves the ISR of two, 5 goes with what only it has, and 4 comes back."""
    behind, last = cluster.nodes[4], cluster.nodes[5]
    configs = ("--config", "min.insync.replicas=1")
    tools.ask(TOPICS, "--create", "--topic", "unclean", "--replica-assignment", "5:4", *configs)
    behind.kill()
    until(lambda: cluster.isrs("unclean") == [[5]], "broker 4 has left the ISR")
    assert "Topic: unclean" in tools.ask(TOPICS, "--describe", "--under-replicated-partitions")
    last.kill()
    behind.start()
    try:
        until(lambda: cluster.leaders("unclean") == [-1], "nobody leads")
        chosen = ("--topic", "unclean", "--partition", "0")
        refused = tools.run(ELECTION, *_to(tools), "--election-type", "preferred", *chosen, check=False)
        assert "PreferredLeaderNotAvailableException" in refused
        elected = tools.ask(ELECTION, "--election-type", "unclean", *chosen)
        assert "Successfully completed leader election (UNCLEAN) for partitions unclean-0" in elected
        until(lambda: cluster.leaders("unclean") == [4], "broker 4 leads")
    finally:
        last.start()
    cluster.wait_in_sync("unclean", 2)


def test_replicas_are_the_same_everywhere(tools: KafkaTools, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("compared", 3)
    cluster.wait_in_sync("compared")
    which = ("--broker-list", tools.bootstrap_servers, "--topics-include", "compared")
    how = (*which, "--report-interval-ms", "500", "--time", "-2")
    said: list[str] = []
    for _ in range(5):
        # It ends at the first error, as while a leader that has just come back is not yet known to all.
        with Tool(tools, tmp_path / "verified", VERIFY_REPLICAS, *how) as tool:
            until(lambda: tool.has_ended or any("max lag is" in line for line in tool.lines()), "it has compared", 120)
            said = [line for line in tool.lines() if "max lag is" in line]
        if said:
            break
    assert "max lag is 0" in said[0]


def test_verifiable_clients_see_no_failure(tools: KafkaTools, cluster: Cluster, tmp_path: Path) -> None:
    """A leader is killed with -9, and all nodes are restarted one by one."""
    cluster.create_topic("verified", 3)
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\nenable.idempotence=true\n")  # By itself that tool does not try again.
    count = 6000
    common = (*_to(tools), "--topic", "verified", "--max-messages", str(count))
    settings = ("--throughput", "500", "--acks", "-1", "--command-config", str(config))
    producer = Tool(tools, tmp_path / "produced", PRODUCER, *common, *settings)
    group = ("--group-id", "verified", "--reset-policy", "earliest", "--verbose")
    consumer = Tool(tools, tmp_path / "consumed", CONSUMER, *common, *group)
    with producer, consumer:
        until(lambda: len(producer.lines()) > 200, "the producer runs")
        killed = cluster.nodes[cluster.leaders("verified")[0]]
        killed.kill()
        killed.start()
        cluster.wait_in_sync("verified")
        for node in cluster.nodes.values():
            assert node.stop() == 0
            node.start()
            cluster.wait_in_sync("verified")
        said = [json.loads(line) for line in producer.whole()]
        heard = [json.loads(line) for line in consumer.whole()]
    sent = [item["value"] for item in said if item["name"] == "producer_send_success"]
    assert [item for item in said if item["name"] == "producer_send_error"] == []
    assert len(sent) == count
    read = [item["value"] for item in heard if item["name"] == "record_data"]
    assert sorted(read, key=int) == sorted(sent, key=int)
    assert all(item["success"] for item in heard if item["name"] == "offsets_committed")


def _to(tools: KafkaTools) -> tuple[str, str]:
    return "--bootstrap-server", tools.bootstrap_servers
