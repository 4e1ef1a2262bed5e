"""Nobody is locked in: a directory that Apache Kafka wrote is served by Ottla as it is, and the other way round."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from bench import processes
from bench.errors import NotMeasured
from bench.systems import CLUSTER_ID, FORMAT_TIMEOUT_S, JVM_OPTIONS, Broker, Kafka, Ottla, start_and_wait
from bench.tools import Tools, cache_directory, kafka_jars
from ottla.cli.free_ports import free_ports
from tests.clients.conftest import create, fill
from tests.clients.members import members_of, until, values
from tests.clients.test_transactions import ConfluentTransactions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PROGRAM = str(Path(sys.executable).with_name("ottla"))
PARTITIONS = 3
QUORUMS: dict[str, Callable[[int], str]] = {
    "static": lambda port: f"controller.quorum.voters=1@127.0.0.1:{port}",
    "dynamic": lambda port: f"controller.quorum.bootstrap.servers=127.0.0.1:{port}",
}
SETTINGS = """process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.backoff.ms=100
log.segment.delete.delay.ms=100
"""


@dataclass
class Home:
    """One directory and one server.properties, in turn under both systems."""

    directory: Path
    tools: Tools
    port: int
    running: Broker | None = None
    written: list[int] = field(default_factory=list)
    """What must be read from the topic `orders`, by whoever serves it."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def properties(self) -> str:
        return str(self.directory / "server.properties")

    def under_kafka(self) -> None:
        kafka = Kafka(self.tools)
        command = self.tools.java("kafka.Kafka", self.properties, options=JVM_OPTIONS)
        self.running = start_and_wait(kafka, command, self.directory, self.port)

    def under_ottla(self) -> None:
        self.running = start_and_wait(Ottla(PROGRAM), self.serve, self.directory, self.port)

    @property
    def serve(self) -> list[str]:
        return [PROGRAM, "serve", "--config", self.properties]

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        broker, self.running = self.running, None
        if broker is not None:
            broker.process.send_signal(how)
            broker.process.wait(60)
            processes.stop(broker.process)


@pytest.fixture
def make_home(tmp_path: Path) -> Iterator[Callable[[str], Home]]:
    """A directory that Apache Kafka has formatted."""
    homes: list[Home] = []

    def make(quorum: str) -> Home:
        try:
            tools = Tools(kafka_jars(cache_directory()), "", None, "")
        except NotMeasured as reason:
            pytest.skip(f"Apache Kafka cannot be had here: {reason}")
        port, controller_port = free_ports(2)
        home = Home(tmp_path, tools, port)
        homes.append(home)
        addresses = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
        lines = f"listeners={addresses}\nlog.dirs={tmp_path / 'data'}\n{QUORUMS[quorum](controller_port)}\n"
        (tmp_path / "server.properties").write_text(SETTINGS + lines)
        storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", home.properties]
        standalone = ["--standalone"] if quorum == "dynamic" else []
        processes.run(tools.java(*storage, *standalone), FORMAT_TIMEOUT_S)
        return home

    yield make
    for home in homes:
        home.end(signal.SIGKILL)


def use(home: Home, first: int) -> None:
    """What a user leaves behind: records, committed and aborted transactions, a group's offsets, configs, topics."""
    producer = ConfluentTransactions(home.address, "mover")
    producer.begin()
    producer.send("orders", range(first + 400, first + 500), PARTITIONS)
    producer.abort()
    producer.begin()
    producer.send("orders", range(first + 300, first + 400), PARTITIONS)
    producer.commit()
    fill(home.address, "orders", PARTITIONS, range(first, first + 300))
    home.written += range(first, first + 400)
    create(home.address, f"made-{first}")
    admin = AdminClient({"bootstrap.servers": home.address})
    admin.delete_topics([create(home.address, f"deleted-{first}")])[f"deleted-{first}"].result(10)


def commit_ends(home: Home) -> list[int]:
    """The group `readers` has read everything. Returns its offsets."""
    consumer = Consumer({"bootstrap.servers": home.address, "group.id": "readers"})
    ends = [consumer.get_watermark_offsets(TopicPartition("orders", n), 10)[1] for n in range(PARTITIONS)]
    consumer.commit(offsets=[TopicPartition("orders", n, ends[n]) for n in range(PARTITIONS)], asynchronous=False)
    consumer.close()
    return ends


def check(home: Home, *, offsets: list[int], topics: set[str]) -> None:
    """Everything that was written is there once, nothing of what was aborted, and all else as it was left."""
    with members_of(home.address) as members:
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        member = members.join("confluent-classic", f"check-{len(home.written)}", "orders", **settings)
        until(lambda: len(values(member)) >= len(home.written), member, seconds=30)
        assert values(member) == sorted(home.written)
    consumer = Consumer({"bootstrap.servers": home.address, "group.id": "readers"})
    committed = consumer.committed([TopicPartition("orders", number) for number in range(PARTITIONS)], 20)
    consumer.close()
    assert [place.offset for place in committed] == offsets
    admin = AdminClient({"bootstrap.servers": home.address})
    found = {name for name in admin.list_topics(timeout=10).topics if not name.startswith("__")}
    assert found == topics
    config = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    assert admin.describe_configs([config])[config].result(10)["retention.ms"].value == "86400000"


@pytest.mark.parametrize("quorum", QUORUMS)
def test_a_directory_moves_from_kafka_to_ottla_and_back(make_home: Callable[[str], Home], quorum: str) -> None:
    home = make_home(quorum)
    home.under_kafka()
    create(home.address, "orders", PARTITIONS, {"retention.ms": "86400000"})
    use(home, 0)
    offsets = commit_ends(home)
    home.end()

    home.under_ottla()
    check(home, offsets=offsets, topics={"orders", "made-0"})
    use(home, 1000)
    offsets = commit_ends(home)
    # Kafka repairs what a kill leaves of Ottla.
    home.end(signal.SIGKILL if quorum == "dynamic" else signal.SIGTERM)

    home.under_kafka()
    check(home, offsets=offsets, topics={"orders", "made-0", "made-1000"})
    use(home, 2000)
    home.end()

    home.under_ottla()
    check(home, offsets=offsets, topics={"orders", "made-0", "made-1000", "made-2000"})


def test_what_kafka_left_by_a_kill_is_not_touched(make_home: Callable[[str], Home]) -> None:
    home = make_home("static")
    home.under_kafka()
    home.end(signal.SIGKILL)
    refused = subprocess.run(home.serve, capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 1
    assert "if it was killed, start it once more" in refused.stderr.splitlines()[-1]
