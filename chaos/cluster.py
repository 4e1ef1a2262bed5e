"""Three brokers that are voters too, with proxies between them."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.cimpl import NewTopic

from chaos.clients.client import settings
from chaos.links import Links
from chaos.node import Node
from chaos.waiting import TooLate, until
from ottla.cli.free_ports import free_ports

CONFIG: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": "1048576",
    "auto.create.topics.enable": "false",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
}
HASTY: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
"""Shorter than the defaults, so that a run of a minute sees sessions end."""


class Cluster:
    """Nodes 1 to n. With `links` brokers reach each other through proxies, else directly."""

    def __init__(
        self, directory: Path, *, nodes: int = 3, links: bool = True, config: dict[str, str] | None = None
    ) -> None:
        ids = range(1, nodes + 1)
        ports = iter(free_ports(3 * nodes))
        self._client_ports = {node_id: next(ports) for node_id in ids}
        self._node_ports = {node_id: (next(ports), next(ports)) for node_id in ids}
        self._reached_at = {node_id: pair[1 if links else 0] for node_id, pair in self._node_ports.items()}
        self._cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self._config = {**CONFIG, **(config or {})}
        self.nodes = {n: Node(n, directory / f"node-{n}", self._properties(n)) for n in ids}
        self.links = Links(self._node_ports, self._pids) if links else None
        self._admin: AdminClient | None = None

    def _properties(self, node_id: int) -> dict[str, str]:
        clients = f"CLIENTS://127.0.0.1:{self._client_ports[node_id]}"
        return {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "cluster.id": self._cluster_id,
            "listeners": f"{clients},NODES://127.0.0.1:{self._node_ports[node_id][0]}",
            "advertised.listeners": f"{clients},NODES://127.0.0.1:{self._reached_at[node_id]}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,NODES:PLAINTEXT",
            "inter.broker.listener.name": "NODES",
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in self._reached_at.items()),
            **self._config,
        }

    def _pids(self) -> dict[int, int]:
        return {node_id: node.pid for node_id, node in self.nodes.items() if node.pid is not None}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._client_ports.values())

    # -- what is done to nodes

    def start(self, *node_ids: int) -> None:
        """Start these, or all; return when they are ready."""
        for node_id in node_ids or self.nodes:
            if self.links is not None:
                self.links.listen(node_id)
            self.nodes[node_id].launch()
        for node_id in node_ids or self.nodes:
            self.nodes[node_id].wait_ready()

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.gone(node_id)
            self.nodes[node_id].kill()

    def stop(self, node_id: int) -> int:
        code = self.nodes[node_id].stop()
        self.gone(node_id)
        return code

    def gone(self, node_id: int) -> None:
        """A node's process has ended, by our doing or its own."""
        if self.links is not None:
            self.links.refuse(node_id)

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        if self.links is not None:
            self.links.close()

    # -- what is asked of the cluster

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(settings(self.bootstrap_servers, socket_timeout_ms=5000))
        return self._admin

    def create_topic(self, name: str, partitions: int, **config: str) -> None:
        topic = NewTopic(name, partitions, 3, config={key.replace("_", "."): value for key, value in config.items()})
        self.admin().create_topics([topic])[name].result(20)
        self.wait_in_sync(20)

    def leader(self, topic: str, partition: int) -> int:
        return int(self.admin().list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)

    def wait_in_sync(self, seconds_max: float) -> float:
        """Return when every partition has all of its replicas in sync, with the time that took."""
        missing = "not known"

        def complete() -> bool:
            nonlocal missing
            try:
                topics = self.admin().list_topics(timeout=5).topics
            except KafkaException as error:
                missing = str(error)
                return False
            missing = ", ".join(row for topic in topics.values() for row in _out_of_sync(topic))
            return not missing

        try:
            return until(complete, "all replicas are in sync", seconds_max)
        except TooLate as error:
            raise TooLate(f"{error}; missing: {missing}") from None


def _out_of_sync(topic: TopicMetadata) -> list[str]:
    return [
        f"{topic.topic}-{index} has leader {partition.leader} and {sorted(partition.isrs)} of {partition.replicas}"
        for index, partition in sorted(topic.partitions.items())
        if partition.leader < 0 or len(partition.isrs) < len(partition.replicas)
    ]
