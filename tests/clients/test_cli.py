"""The command `ottla` against a running broker.

A process of its own takes half a second to load, so most commands run inside this one, with their own standard streams;
those that are about processes (signals, pipes, terminals, exit codes) are real ones.

OTTLA_TEST_BOOTSTRAP=host:port names another broker, Apache Kafka for example.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla import Server
from ottla.cli.app import run_command
from ottla.client.admin import Admin

COMMAND = (sys.executable, "-m", "ottla")
SECONDS_MAX = 60


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    named = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if named:
        return named
    return str(request.getfixturevalue("ottla_server").bootstrap_servers)


class Done(NamedTuple):
    """What a command wrote."""

    stdout: bytes
    stderr: bytes


def heed_interrupts() -> None:
    """In the child: who runs the tests in the background may have told it to ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Shell:
    """Runs `ottla` with the broker's address in the environment."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "OTTLA_BOOTSTRAP": bootstrap, "COLUMNS": "120"}
        self.environment.pop("OTTLA_DEBUG", None)

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Done:
        """Run a command in this process."""
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        with tempfile.TemporaryFile("w+") as typed, pytest.MonkeyPatch.context() as patch:
            typed.buffer.write(stdin)
            typed.seek(0)
            for name in ("OTTLA_BOOTSTRAP", "COLUMNS"):
                patch.setenv(name, self.environment[name])
            patch.delenv("OTTLA_DEBUG", raising=False)
            for name, stream in (("stdin", typed), ("stdout", out), ("stderr", err)):
                patch.setattr(sys, name, stream)
            returned = _exit_code(arguments)
            out.flush()
            err.flush()
        done = Done(_written(out), _written(err))
        assert returned == code, done
        assert b"Traceback" not in done.stderr
        return done

    def process(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Done:
        """Run a command in a process of its own."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return Done(done.stdout, done.stderr)

    def output(self, *arguments: str, stdin: bytes = b"") -> str:
        return self.run(*arguments, stdin=stdin).stdout.decode()

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self.environment,
            bufsize=0,
            preexec_fn=heed_interrupts,
        )
        with child:
            try:
                yield child
            finally:
                child.kill()


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        return run_command(arguments)
    except SystemExit as leaving:
        return int(str(leaving.code or 0))


def _written(stream: io.TextIOWrapper) -> bytes:
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue()


@pytest.fixture
def ottla(bootstrap: str) -> Shell:
    return Shell(bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> Iterator[str]:
    """A topic with two partitions."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    with Admin.connect(bootstrap) as admin:
        admin.create_topic(name, partitions=2)
        yield name
        admin.delete_topic(name)


def records_of(ottla: Shell, topic: str, *arguments: str) -> list[dict[str, object]]:
    lines = ottla.output("consume", topic, *arguments).splitlines()
    return [json.loads(line) for line in lines]


def test_a_topic_lives_its_life(ottla: Shell) -> None:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    created = ottla.output("topic", "create", name, "--partitions", "3", "--config", "retention.ms=1000000")
    assert "3 partitions" in created
    assert name in ottla.run("topic", "create", name, code=5).stderr.decode()
    ottla.run("topic", "create", name, "--if-not-exists")
    listed = {row["topic"]: row for row in json.loads(ottla.output("topic", "list", "--output", "json"))}
    assert listed[name]["partitions"] == 3
    ottla.run("topic", "alter", name, "--partitions", "4", "--config", "segment.bytes=2000000")
    ottla.run("topic", "alter", name, "--delete-config", "retention.ms")
    described = json.loads(ottla.output("topic", "describe", name, "--output", "json"))
    assert len(described["partitions"]) == 4
    assert described["configs"] == {"segment.bytes": "2000000"}
    assert {"leader", "isr", "start", "end", "size_bytes"} <= described["partitions"][0].keys()
    ottla.run("topic", "delete", name)
    ottla.run("topic", "describe", name, code=4)
    ottla.run("topic", "delete", name, code=4)
    ottla.run("topic", "delete", name, "--if-exists")


def test_lines_go_in_and_come_out(ottla: Shell, topic: str) -> None:
    done = ottla.process("produce", topic, "--partition", "0", stdin=b"one\ntwo\nthree")
    assert b"3 records" in done.stderr
    assert done.stdout == b""
    assert [record["value"] for record in records_of(ottla, topic)] == ["one", "two", "three"]
    assert ottla.output("consume", topic, "--output", "plain", "--no-keys") == "one\ntwo\nthree\n"


def test_what_consume_prints_produce_takes(ottla: Shell, topic: str) -> None:
    line = b'{"key":"k","value":"/w==","value_encoding":"base64","headers":{"h":"x"},"partition":1,"timestamp":5}\n'
    ottla.run("produce", topic, "--json", "--idempotent", "--compression", "zstd", stdin=line)
    printed = ottla.run("consume", topic).stdout
    ottla.run("produce", topic, "--json", stdin=printed)
    first, second = records_of(ottla, topic)
    assert first | {"offset": 1} == second
    assert second["value_encoding"] == "base64"
    assert second["headers"] == [{"key": "h", "value": "x"}]


def test_keys_headers_and_nulls(ottla: Shell, topic: str) -> None:
    options = ("--key-separator", ":", "--null-marker", "NULL", "--header", "a=b", "--acks", "1")
    ottla.run("produce", topic, *options, stdin=b"k:v\nk:NULL\n")
    shown = ottla.output("consume", topic, "-f", "%k|%s|%S|%h\\n")
    assert shown == "k|v|1|a=b\nk||-1|a=b\n"


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_file_is_sent_in_every_codec(ottla: Shell, topic: str, tmp_path: Path, compression: str) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(5_000)))
    ottla.run("produce", topic, "--file", str(file), "--compression", compression, "--partition", "0")
    assert ottla.output("consume", topic, "-f", "%s\\n") == file.read_text()


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("beginning", ["0", "1", "2", "3", "4"]),
        ("3", ["3", "4"]),
        ("-2", ["3", "4"]),
        ("@3000", ["3", "4"]),
        ("1970-01-01T00:00:02Z", ["2", "3", "4"]),
        ("end", []),
    ],
)
def test_reading_starts_where_it_was_asked_to(ottla: Shell, topic: str, start: str, values: list[str]) -> None:
    lines = b"".join(b'{"value": "%d", "timestamp": %d}\n' % (number, number * 1_000) for number in range(5))
    ottla.run("produce", topic, "--json", "--partition", "0", stdin=lines)
    found = records_of(ottla, topic, "--from", start, "--partition", "0")
    assert [record["value"] for record in found] == values


def test_reading_stops_after_as_many_as_were_wanted(ottla: Shell, topic: str) -> None:
    ottla.run("produce", topic, stdin=b"x\n" * 50)
    assert len(records_of(ottla, topic, "-n", "7")) == 7


def test_following_shows_records_as_they_come_and_ends_with_ctrl_c(ottla: Shell, topic: str) -> None:
    with ottla.started("consume", topic, "--follow", "-f", "%s\\n") as following:
        assert following.stdout is not None
        for value in (b"first", b"second"):
            ottla.run("produce", topic, stdin=value)
            assert following.stdout.readline() == value + b"\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(SECONDS_MAX) == 130


def test_a_line_is_sent_when_it_is_typed_and_ctrl_c_loses_nothing(ottla: Shell, topic: str) -> None:
    with (
        ottla.started("produce", topic) as typing,
        ottla.started("consume", topic, "--follow", "-f", "%s\\n") as following,
    ):
        assert typing.stdin is not None
        assert following.stdout is not None
        for value in (b"typed\n", b"again\n"):
            typing.stdin.write(value)
            assert following.stdout.readline() == value
        typing.send_signal(signal.SIGINT)
        assert typing.wait(SECONDS_MAX) == 130
        assert typing.stderr is not None
        assert b"2 records" in typing.stderr.read()


def test_a_reader_that_has_had_enough_is_no_failure(ottla: Shell, topic: str) -> None:
    ottla.run("produce", topic, stdin=b"x" * 1_000 + b"\n" + b"y" * 1_000 + b"\n" * 20_000)
    with ottla.started("consume", topic) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline()
        consuming.stdout.close()
        assert consuming.wait(SECONDS_MAX) == 0
        assert consuming.stderr is not None
        assert consuming.stderr.read() == b""


def test_a_terminal_gets_a_table(ottla: Shell, topic: str) -> None:
    ottla.run("produce", topic, "--key", "k", stdin=b"hello\x1b[2J\n")
    reading, terminal = pty.openpty()
    done = subprocess.run([*COMMAND, "consume", topic], stdout=terminal, env=ottla.environment, check=True, timeout=60)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while chunk := os.read(reading, 4096):
            shown += chunk
    os.close(reading)
    assert done.returncode == 0
    assert b"offset" in shown
    assert b"hello\\x1b[2J" in shown


def test_configs_are_got_set_and_unset(ottla: Shell, topic: str) -> None:
    ottla.run("config", "set", "--topic", topic, "retention.ms=5000000", "cleanup.policy=compact")
    shown = json.loads(ottla.output("config", "get", "--topic", topic, "--output", "json"))
    assert shown == {"cleanup.policy": "compact", "retention.ms": "5000000"}
    ottla.run("config", "unset", "--topic", topic, "retention.ms")
    assert "compact" in ottla.output("config", "get", "--topic", topic, "cleanup.policy")
    assert b"no.such" in ottla.run("config", "set", "--topic", topic, "no.such=1", code=1).stderr
    ottla.run("config", "get", "--topic", topic, "no.such", code=2)
    ottla.run("config", "get", "--topic", "cli-never-was", code=4)


def test_a_config_that_there_is_not_is_not_said_to_be_unset(ottla: Shell, topic: str) -> None:
    assert b"retention.sm" in ottla.run("config", "unset", "--topic", topic, "retention.sm", code=2).stderr
    assert b"retention.sm" in ottla.run("topic", "alter", topic, "--delete-config", "retention.sm", code=2).stderr


@pytest.mark.parametrize("arguments", [("get",), ("set", "log.retention.ms=1"), ("unset", "log.retention.ms")])
def test_a_broker_that_there_is_not_is_not_waited_for(ottla: Shell, arguments: tuple[str, ...]) -> None:
    started_at = time.monotonic()
    assert b"broker 4711" in ottla.run("config", *arguments, "--broker", "4711", code=4).stderr
    assert time.monotonic() - started_at < 10


def test_feature_levels_are_shown_and_changed(tmp_path: Path) -> None:
    with Server(data=tmp_path / "data") as server:
        ottla = Shell(server.bootstrap_servers)
        assert "group.version\t1\t0\t1\n" in ottla.output("cluster", "features")
        lower = ("cluster", "features", "group.version=0")
        assert b"downgrade" in ottla.run(*lower, code=1).stderr
        assert b"nothing was changed" in ottla.run(*lower, "--downgrade", "--dry-run").stderr
        assert "group.version\t0\t0\t1\n" in ottla.output(*lower, "--downgrade")
        assert b"group.version=1" in ottla.run("cluster", "features", "--newest").stderr
        assert b"already" in ottla.run("cluster", "features", "--newest").stderr
        shown = json.loads(ottla.output("cluster", "features", "--output", "json"))
        assert {"feature": "group.version", "level": 1, "min_level": 0, "max_level": 1} in shown
        assert b"share.version" in ottla.run("cluster", "features", "share.version=1", code=1).stderr
        for wrong in (("group.version",), ("group.version=one",), ("--downgrade",), ("--newest", "group.version=1")):
            ottla.run("cluster", "features", *wrong, code=2)


def test_the_cluster_is_shown(ottla: Shell, bootstrap: str) -> None:
    shown = json.loads(ottla.output("cluster", "info", "--output", "json"))
    assert f"{shown['brokers'][0]['host']}:{shown['brokers'][0]['port']}" == bootstrap
    assert shown["cluster_id"]
    assert shown["log_directories"]
    assert shown["cluster_id"] in ottla.output("cluster", "info")


def test_the_doctor_finds_a_healthy_broker_healthy(ottla: Shell, tmp_path: Path) -> None:
    findings = json.loads(ottla.output("doctor", "--data", str(tmp_path), "--output", "json"))
    health = {finding["check"]: finding["health"] for finding in findings}
    assert "fail" not in health.values(), findings
    assert {"port", "protocol", "metadata", "advertised address", "partitions", "clock"} <= health.keys()


def test_the_doctor_says_that_nothing_listens(ottla: Shell) -> None:
    done = ottla.run("doctor", "--bootstrap", "127.0.0.1:1", code=1)
    assert b"fail" in done.stdout
    assert b"ottla serve" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("consume", "cli-never-was"), 4, b"cli-never-was"),
        (("topic", "describe", "cli-never-was"), 4, b"cli-never-was"),
        (("topic", "create", "a/b"), 1, b"a/b"),
        (("topic", "list", "--bootstrap", "127.0.0.1:1"), 3, b"127.0.0.1:1"),
        (("topic", "list", "--output", "xml"), 2, b"xml"),
    ],
)
def test_a_failure_is_one_line_and_a_known_exit_code(
    ottla: Shell, arguments: tuple[str, ...], code: int, said: bytes
) -> None:
    done = ottla.process(*arguments, code=code)
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


def test_a_wrong_line_of_input_is_named(ottla: Shell, topic: str) -> None:
    done = ottla.run("produce", topic, "--json", stdin=b'{"value": 1}\nnonsense\n', code=1)
    assert b"line 2" in done.stderr


def test_lines_before_a_wrong_one_are_sent(ottla: Shell, topic: str) -> None:
    done = ottla.run("produce", topic, "--key-separator", ":", stdin=b"a:1\nb:2\nnonsense\nc:3\n", code=1)
    assert b"line 3" in done.stderr
    assert b"the 2 before it are sent" in done.stderr
    assert [record["value"] for record in records_of(ottla, topic)] == ["1", "2"]
    wrong = b'{"value": "3"}\n{"value": "x", "partition": 4711}\n'
    done = ottla.run("produce", topic, "--json", stdin=wrong, code=4)
    assert b"line 2" in done.stderr
    assert [record["value"] for record in records_of(ottla, topic)] == ["1", "2", "3"]


def test_headers_arrive_as_they_were_typed(ottla: Shell, topic: str) -> None:
    ottla.run("produce", topic, "-H", "via=a", "-H", "via=b", "-H", "note= two  blanks ", stdin=b"x\n")
    (record,) = records_of(ottla, topic)
    assert record["headers"] == [
        {"key": "via", "value": "a"},
        {"key": "via", "value": "b"},
        {"key": "note", "value": " two  blanks "},
    ]
    assert b"-8" in ottla.run("produce", topic, "-H", "\udcff=1", stdin=b"x\n", code=2).stderr


def test_a_directory_is_no_file_to_send(ottla: Shell, topic: str, tmp_path: Path) -> None:
    done = ottla.run("produce", topic, "--file", str(tmp_path), code=2)
    assert done.stderr.decode() == f"ottla: --file: {tmp_path} is a directory\n"
