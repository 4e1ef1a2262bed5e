"""The two systems, each as one broker on 127.0.0.1 with the same settings under the same names."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench import processes
from bench.errors import NotMeasured
from bench.tools import KAFKA_VERSION, Tools
from ottla.cli.free_ports import free_port, free_ports

START_TIMEOUT_S = 180
FORMAT_TIMEOUT_S = 60
POLL_S = 0.002
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""What Kafka's own start script gives a broker."""
CLUSTER_ID = "b3R0bGEtYmVuY2gtMDAwMQ"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that answered. `started_s` is the time from its start to its first answer, without formatting."""

    system: System
    process: subprocess.Popen[str]
    port: int
    home: Path
    started_s: float

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        return processes.cpu_seconds(self.process.pid)

    def resident_mb(self) -> float:
        return processes.resident_mb(self.process.pid)

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, keep_data: bool = False) -> None:
        processes.stop(self.process)
        if not keep_data:
            shutil.rmtree(self.home, ignore_errors=True)

    def restarted(self) -> Broker:
        """The same data, after a clean stop."""
        self.stop(keep_data=True)
        return self.system.start(self.home)


class System(Protocol):
    """One of the two: knows how to start a broker in a folder, empty or used before."""

    @property
    def name(self) -> str: ...

    def start(self, home: Path) -> Broker: ...


@dataclass(frozen=True, slots=True)
class Kafka:
    """Apache Kafka as broker and controller in one process, which is its smallest form."""

    tools: Tools
    name: str = "kafka"

    def start(self, home: Path) -> Broker:
        properties = home / "server.properties"
        if not properties.exists():
            self._format(home, properties)
        port = int((home / "port").read_text())
        command = self.tools.java("kafka.Kafka", str(properties), options=JVM_OPTIONS)
        return start_and_wait(self, command, home, port)

    def _format(self, home: Path, properties: Path) -> None:
        home.mkdir(parents=True)
        port, controller_port = free_ports(2)
        (home / "port").write_text(str(port))
        settings = SETTINGS | {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(home / "data"),
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        storage = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        processes.run(self.tools.java(*storage), FORMAT_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Ottla:
    """Ottla as its user starts it."""

    program: str
    name: str = "ottla"

    def start(self, home: Path) -> Broker:
        home.mkdir(parents=True, exist_ok=True)
        port_file = home / "port"
        if not port_file.exists():
            port_file.write_text(str(free_port()))
        port = int(port_file.read_text())
        sets = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
        command = [self.program, "serve", "--data", str(home / "data"), "--port", str(port), *sets]
        broker = start_and_wait(self, command, home, port)
        wait_for_ready_line(home / "output", broker)
        return broker


def start_and_wait(system: System, command: list[str], home: Path, port: int) -> Broker:
    with (home / "output").open("w") as output:
        began = time.monotonic()
        process = processes.spawn(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    while not brokers_listed(port):
        waited_s = time.monotonic() - began
        if process.poll() is not None or waited_s > START_TIMEOUT_S:
            processes.stop(process)
            raise NotMeasured(f"{system.name} did not start within {waited_s:.0f} s: {last_words(home / 'output')}")
        time.sleep(POLL_S)
    return Broker(system, process, port, home, time.monotonic() - began)


def wait_for_ready_line(output: Path, broker: Broker) -> None:
    deadline = time.monotonic() + 5
    while "ready" not in output.read_text(errors="replace"):
        if time.monotonic() > deadline:
            broker.stop()
            raise NotMeasured(f"{broker.system.name} answers, but printed no line with `ready`")
        time.sleep(POLL_S)


def last_words(output: Path) -> str:
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it printed nothing"


def brokers_listed(port: int) -> int:
    """How many brokers a Metadata answer names; 0 while nobody answers. A broker that is up but fenced names none."""
    no_topics = b"\x01\x00\x00\x00"
    header = struct.pack(">hhih5sx", 3, 12, 1, 5, b"bench")
    frame = header + no_topics
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            answer = connection.makefile("rb").read(4 + 10)
    except OSError:
        return 0
    return answer[13] - 1 if len(answer) == 14 else 0


def describe(system: System) -> str:
    return f"Apache Kafka {KAFKA_VERSION}" if system.name == "kafka" else "Ottla"
