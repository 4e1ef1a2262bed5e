"""Three brokers, the same as `ottla serve --brokers 3` starts, killed and brought back when the conductor says so."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.clients import settings
from demo.interrupts import held, unwrapped
from demo.timeline import Place
from demo.waiting import until
from ottla.cli.cluster_plan import PlannedBroker, plan_cluster
from ottla.cli.serve_cluster import SUPERVISED

COUNT: Final = 3
CONFIG: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
READY: Final = b"ottla is ready"
START_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 30.0


class Broker:
    """One broker's process. What it says goes to a file."""

    def __init__(self, planned: PlannedBroker) -> None:
        self.name = f"broker {planned.node_id}"
        self.address = f"{planned.host}:{planned.port}"
        self.log_path = Path(f"{planned.data}.log")
        self._command = [sys.executable, "-m", "ottla", "serve", "--data", planned.data]
        self._command += ["--host", planned.host, "--port", str(planned.port)]
        for key, value in planned.properties.items():
            self._command += ["--set", f"{key}={value}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start it and wait for nothing. It ends when this process does, because its input ends then."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._said_before = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, SUPERVISED: "1"},
                # A Ctrl-C at the terminal is ours to pass on.
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """Whether it has said so since it was launched; RuntimeError if it ended instead."""
        said = self.log_path.read_bytes()[self._said_before :]
        if not self.is_running:
            raise RuntimeError(f"{self.name} did not start: {said.decode(errors='replace').strip()[-1000:]}")
        return READY in said

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._ended()

    def tell_to_stop(self) -> None:
        """The end of its input is the sign."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def stop(self) -> None:
        """Cleanly, else by force."""
        self.tell_to_stop()
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._ended()

    def _ended(self) -> None:
        self.tell_to_stop()
        if self._process is not None:
            self._process.wait()
            self._process = None


class Brokers:
    """The cluster, by the numbers of its brokers."""

    def __init__(self, directory: Path) -> None:
        planned = plan_cluster(str(directory), COUNT, None, 0, CONFIG)
        self.by_id: Mapping[int, Broker] = {each.node_id: Broker(each) for each in planned}
        self.bootstrap_servers = ",".join(broker.address for broker in self.by_id.values())
        self._admin: AdminClient | None = None

    def start(self, *node_ids: int) -> None:
        """Start these, or all; return when they are ready."""
        brokers = [self.by_id[node_id] for node_id in node_ids or self.by_id]
        with held():
            for broker in brokers:
                broker.launch()
        for broker in brokers:
            until(broker.is_ready, f"{broker.name} is ready", START_SECONDS_MAX)

    def close(self, *, at_once: bool) -> None:
        """End those that run; cleanly, if there is time."""
        for broker in self.by_id.values():
            if at_once:
                broker.kill()
            else:
                broker.tell_to_stop()
        for broker in self.by_id.values():
            broker.stop()

    def create_topics(self, names: list[str], partitions: int) -> None:
        """With a copy on each broker."""
        with unwrapped():
            made = self._ask().create_topics([NewTopic(name, partitions, COUNT) for name in names])
        for topic in made.values():
            topic.result(60)

    def leaders(self) -> dict[Place, int] | None:
        """Who leads what; None if nobody says."""
        rows = self._partitions()
        return None if rows is None else {place: leader for place, (leader, _, _) in rows.items()}

    def in_sync(self) -> bool:
        """Whether every copy of every partition is up to date."""
        rows = self._partitions()
        return rows is not None and all(leader >= 0 and same == all_ for leader, same, all_ in rows.values())

    def _partitions(self) -> dict[Place, tuple[int, int, int]] | None:
        """Leader, copies in sync and copies of each."""
        try:
            with unwrapped():
                topics = self._ask().list_topics(timeout=5).topics
        except KafkaException:
            return None
        return {
            (name, index): (int(partition.leader), len(partition.isrs), len(partition.replicas))
            for name, topic in topics.items()
            for index, partition in topic.partitions.items()
        }

    def _ask(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(settings(self.bootstrap_servers, socket_timeout_ms=5000))
        return self._admin
