"""The two systems, each as a cluster of three brokers on 127.0.0.1 with the same settings under the same names.

Every broker is a controller too, which is the smallest form that survives the loss of one. All else has each system's
defaults, so that what a failure costs is what its users would see.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench import processes
from bench.errors import NotMeasured
from bench.systems import (
    CLUSTER_ID,
    FORMAT_TIMEOUT_S,
    JVM_OPTIONS,
    POLL_S,
    START_TIMEOUT_S,
    Kafka,
    Ottla,
    System,
    brokers_listed,
    last_words,
)
from ottla.cli.free_ports import free_port, free_ports, is_taken

BROKERS = (1, 2, 3)
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


@dataclass(slots=True)
class Cluster:
    """Three brokers. `started_s` is the time from nothing until each of them knows all three, formatting included."""

    system: System
    home: Path
    ports: dict[int, int]
    commands: list[list[str]]
    """One for each broker; or one for all of them, which then starts again what dies."""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    started_s: float = 0.0

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def first_address(self) -> str:
        return f"127.0.0.1:{self.ports[BROKERS[0]]}"

    def cpu_s(self) -> float:
        return sum(processes.cpu_seconds(process.pid) for process in self.processes)

    def resident_mb(self) -> float:
        return sum(processes.resident_mb(process.pid) for process in self.processes)

    def start(self) -> None:
        began = time.monotonic()
        self.processes = [self._spawn(number) for number in range(len(self.commands))]
        self.wait_for_all()
        self.started_s += time.monotonic() - began

    def _spawn(self, number: int) -> subprocess.Popen[str]:
        with self._output(number).open("a") as output:
            command = self.commands[number]
            return processes.spawn(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def _output(self, number: int) -> Path:
        return self.home / f"output-{number + 1}"

    def wait_for_all(self, without: int | None = None) -> None:
        """Return when every broker, except one that is down, names all those that are up."""
        ports = [port for broker, port in self.ports.items() if broker != without]
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(brokers_listed(port) != len(ports) for port in ports):
            if time.monotonic() > deadline:
                words = last_words(self._output(0))
                raise NotMeasured(f"{self.system.name}: not every broker knew the others in time: {words}")
            time.sleep(POLL_S)

    def end(self, broker: int, how: signal.Signals) -> None:
        """End one broker, and whatever it has started."""
        pid = self._pid(broker)
        members = processes.family(pid) if how is signal.SIGKILL else [pid]
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, how)

    def heal(self, broker: int) -> None:
        """Have a broker back that was ended. Where one command runs all, that starts it again by itself."""
        if len(self.commands) > 1:
            number = BROKERS.index(broker)
            processes.stop(self.processes[number])
            self.processes[number] = self._spawn(number)
        self.wait_for_all()

    def _pid(self, broker: int) -> int:
        if len(self.commands) > 1:
            return self.processes[BROKERS.index(broker)].pid
        for member in processes.family(self.processes[0].pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{member}/cmdline").read_text().split("\0")
                if f"broker-{broker}" in " ".join(words) and member != self.processes[0].pid:
                    return member
        raise NotMeasured(f"{self.system.name}: no process of broker {broker} is to be found")

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            processes.stop(process)
        shutil.rmtree(self.home, ignore_errors=True)


def start(system: System, home: Path) -> Cluster:
    """A cluster with nothing in it, which the caller stops."""
    home.mkdir(parents=True)
    cluster = _kafka(system, home) if isinstance(system, Kafka) else _ottla(system, home)
    try:
        cluster.start()
    except NotMeasured:
        cluster.stop()
        raise
    return cluster


def _ottla(system: System, home: Path) -> Cluster:
    if not isinstance(system, Ottla):
        raise NotMeasured(f"{system.name} has no cluster")
    first = free_ports_in_a_row(len(BROKERS))
    sets = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    place = ["--data", str(home / "data"), "--port", str(first)]
    command = [system.program, "serve", "--brokers", str(len(BROKERS)), *place, *sets]
    return Cluster(system, home, {broker: first + broker - 1 for broker in BROKERS}, [command])


def _kafka(system: Kafka, home: Path) -> Cluster:
    ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
    controllers = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
    voters = ",".join(f"{broker}@127.0.0.1:{port}" for broker, port in controllers.items())
    commands, began = [], time.monotonic()
    for broker in BROKERS:
        properties = home / f"server-{broker}.properties"
        settings = SETTINGS | {
            "process.roles": "broker,controller",
            "node.id": str(broker),
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[broker]},CONTROLLER://127.0.0.1:{controllers[broker]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[broker]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": str(home / f"data-{broker}"),
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        commands.append(system.tools.java("kafka.Kafka", str(properties), options=JVM_OPTIONS))
    formats = [
        processes.spawn(
            system.tools.java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for properties in sorted(home.glob("server-*.properties"))
    ]
    for formatting in formats:
        formatting.wait(FORMAT_TIMEOUT_S)
        processes.kill_session(formatting)
    return Cluster(system, home, ports, commands, started_s=time.monotonic() - began)


def free_ports_in_a_row(count: int) -> int:
    """The first of so many ports that nobody has."""
    while True:
        first = free_port()
        if not any(is_taken("127.0.0.1", port) for port in range(first, first + count)):
            return first
