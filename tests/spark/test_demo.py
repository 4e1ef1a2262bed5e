"""The demo as a user runs it: it agrees, it disagrees when there is reason to, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 800
SMALL = ["--rate", "500", "--seconds", "6", "--down", "1", "--limit", str(SECONDS_MAX - 50)]


class Run:
    """`python -m demo` in a process of its own, with a directory for temporary files of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.temporary, self.plot = directory / "temporary", directory / "demo.png"
        self.temporary.mkdir()
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "demo", *SMALL, "--plot", str(self.plot), *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary), "COLUMNS": "120"},
        )

    def read_until(self, text: str) -> str:
        """The line that has it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if text in line:
                return line
        raise AssertionError(f"it never said {text!r}: {''.join(self.said)}")

    def end(self) -> tuple[int, str]:
        """Its exit code and all that it said."""
        assert self.process.stdout is not None
        self.said += self.process.stdout
        return self.process.wait(SECONDS_MAX), "".join(self.said)

    def close(self) -> None:
        """A test that failed half-way leaves nothing behind, either: SIGTERM cleans up as Ctrl-C does."""
        self.process.terminate()
        self.process.communicate(timeout=SECONDS_MAX)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(*options: str) -> Run:
        runs.append(Run(tmp_path, *options))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def left_behind(run: Run) -> list[str]:
    """Processes that name the run's directory, and what lies in it."""
    named = str(run.temporary)
    processes = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if named in command:
            processes.append(command)
    return processes + [str(path) for path in run.temporary.glob("ottla-demo-*")]


def test_a_broker_dies_and_every_event_has_one_result(start: Callable[..., Run]) -> None:
    run = start()
    code, said = run.end()
    assert code == 0, said
    assert "nothing lost, nothing twice" in said
    assert re.search(r"kill -9 \d+: broker \d, which led \d+ of \d+ partitions, is dead", said)
    assert re.search(r"failover: longest wait for a write +│ [\d.]+ s", said)
    assert run.plot.read_bytes().startswith(b"\x89PNG")
    assert f"picture: {run.plot}" in said
    assert left_behind(run) == []


def test_a_result_too_many_is_found(start: Callable[..., Run]) -> None:
    run = start("--keep")
    brokers = re.findall(r"127\.0\.0\.1:\d+", run.read_until("three brokers are ready"))
    run.read_until("this goes on until Ctrl-C")
    write_one_again(",".join(brokers))
    run.process.send_signal(signal.SIGINT)
    code, said = run.end()
    assert code == 1, said
    assert "wrong: activity: 1 events came out more than once" in said
    assert "Spark counts (rows, events, sum)" in said
    assert "nothing twice." not in said
    assert left_behind(run) == []


def write_one_again(bootstrap: str) -> None:
    """A copy of one result, as somebody would leave it who knows nothing of transactions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copyist", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("visits", partition, 0) for partition in range(3)])
    (message,) = consumer.consume(1, timeout=60)
    assert message.error() is None
    consumer.close()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("visits", message.value(), message.key(), message.partition())
    assert producer.flush(60) == 0


def test_an_interrupt_leaves_nothing_behind(start: Callable[..., Run]) -> None:
    run = start()
    run.read_until("three brokers are ready")
    run.process.send_signal(signal.SIGINT)
    code, said = run.end()
    assert code == 130, said
    assert left_behind(run) == []
