"""A cluster of real processes for tests: started, killed, stopped and started again, each node by itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from ottla.cli.cluster_plan import new_cluster_id
from ottla.cli.free_ports import free_ports
from tests.scenarios.brokers import BrokerProcess

SECONDS_MAX = 20.0


def until(condition: Callable[[], bool], what: str, seconds_max: float = SECONDS_MAX) -> None:
    """Return when the condition holds; tests wait for what they need and never for luck."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"within {seconds_max:.0f} s: {what}"
        time.sleep(0.02)


class Node(BrokerProcess):
    """One node; its log tells whether it is ready, since its port answers long before."""

    def __init__(self, directory: Path, node_id: int, port: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, {})
        self.node_id = node_id
        self.port = port
        self._log_seen = 0

    def launch(self) -> None:
        """Start the process and wait for nothing."""
        self._log_seen = len(self.log())
        self.begin()

    def wait_ready(self, seconds_max: float = SECONDS_MAX) -> None:
        until(lambda: self.is_ready or not self.is_running, f"node {self.node_id} is ready", seconds_max)
        assert self.is_ready, f"node {self.node_id} ended: {self.log()[-3000:]}"

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    @property
    def is_ready(self) -> bool:
        return "ottla is ready" in self.log()[self._log_seen :]


class Cluster:
    """Nodes 1 to n, the first `voters` of them controllers too."""

    def __init__(self, directory: Path, brokers: int = 3, voters: int = 3, **config: str) -> None:
        self.directory = directory
        self.cluster_id = new_cluster_id()
        ports = free_ports(brokers)
        self.voters = ",".join(f"{number}@127.0.0.1:{ports[number - 1]}" for number in range(1, voters + 1))
        self.config = {key.replace("_", "."): value for key, value in config.items()}
        self.nodes: dict[int, Node] = {}
        for number, port in enumerate(ports, 1):
            self.add(number, port, "broker,controller" if number <= voters else "broker")

    def add(self, node_id: int, port: int, roles: str = "broker", *, name: str | None = None) -> Node:
        node = Node(self.directory / (name or f"node-{node_id}"), node_id, port)
        node.properties = self.properties(node_id, roles)
        self.nodes[node_id] = node
        return node

    def properties(self, node_id: int, roles: str = "broker,controller") -> dict[str, str]:
        return {
            "node.id": str(node_id),
            "process.roles": roles,
            "cluster.id": self.cluster_id,
            "controller.quorum.voters": self.voters,
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            **self.config,
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def start(self) -> None:
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_ready()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()

    # -- what clients see

    @contextlib.contextmanager
    def admin(self) -> Iterator[AdminClient]:
        yield AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def create_topic(self, name: str, partitions: int = 1, replication: int = 3, **configs: str) -> None:
        with self.admin() as admin:
            config = {key.replace("_", "."): value for key, value in configs.items()}
            topic = NewTopic(name, partitions, replication, config=config)
            admin.create_topics([topic])[name].result(SECONDS_MAX)
        until(lambda: all(leader >= 0 for leader in self.leaders(name)), f"{name} has leaders")

    def leaders(self, topic: str) -> list[int]:
        return [int(partition.leader) for partition in self._partitions(topic)]

    def isrs(self, topic: str) -> list[list[int]]:
        return [sorted(partition.isrs) for partition in self._partitions(topic)]

    def _partitions(self, topic: str) -> list[PartitionMetadata]:
        with self.admin() as admin:
            described = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [described[index] for index in sorted(described)]

    def wait_in_sync(self, topic: str, count: int = 3) -> None:
        until(lambda: all(len(isr) == count for isr in self.isrs(topic)), f"{topic} has {count} replicas in sync")
