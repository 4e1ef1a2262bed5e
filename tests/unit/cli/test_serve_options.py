"""`ottla serve` starts without the command line library, and must understand the same words as with it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer.main

from ottla.cli import serve
from ottla.cli.failures import UsageError
from ottla.cli.serve_options import LOG_FORMATS, LOG_LEVELS, OPTIONS, ServeOptions, _properties, parse_plain, run


def test_both_readers_know_the_same_options() -> None:
    described = {name for parameter in typer.main.get_command(serve.app).params for name in parameter.opts}
    assert set(OPTIONS) == described - {"--help", "-h"}
    assert set(OPTIONS.values()) == {field.name for field in fields(ServeOptions)}
    assert tuple(choice.value for choice in serve.LogFormat) == LOG_FORMATS
    assert tuple(choice.value for choice in serve.LogLevel) == LOG_LEVELS


def test_plain_options_are_read() -> None:
    line = "--data d --port 9 --set a=b --set=c=d=e --host h --config f --metrics-port=8 --metrics-host m"
    line += " --log-format json --log-level info"
    assert parse_plain(line.split()) == ServeOptions(
        data="d",
        port=9,
        settings=("a=b", "c=d=e"),
        host="h",
        config="f",
        metrics_port=8,
        metrics_host="m",
        log_format="json",
        log_level="info",
    )
    assert parse_plain([]) == ServeOptions()


@pytest.mark.parametrize("line", ["--help", "--prot 9", "--port", "--port nine", "data", "--port -1", "--set"])
def test_what_is_not_plain_is_left_to_the_library(line: str) -> None:
    assert parse_plain(line.split()) is None


def test_what_is_set_lies_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# mine\nlog.retention.ms=1\nnum.partitions = 3\n")
    options = ServeOptions(config=str(file), settings=("log.retention.ms=2", "x=y=z"))
    assert _properties(options) == {"log.retention.ms": "2", "num.partitions": "3", "x": "y=z"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (ServeOptions(settings=("log.retention.ms",)), "log.retention.ms"),
        (ServeOptions(settings=("=5",)), "=5"),
        (ServeOptions(config="no/such/file"), "no/such/file"),
        (ServeOptions(brokers=0), "--brokers"),
        (ServeOptions(brokers=3), "--data"),
        (ServeOptions(brokers=3, data="d", settings=("node.id=1",)), "node.id"),
        (ServeOptions(console_port=8080), "--console-port"),
        (ServeOptions(port=65_536), "--port 65536"),
        (ServeOptions(metrics_port=70_000), "--metrics-port 70000"),
        (ServeOptions(metrics_host="0.0.0.0"), "--metrics-port"),
        (ServeOptions(data=""), "--data"),
        (ServeOptions(log_format="xml"), "--log-format"),
        (ServeOptions(log_level="loud"), "--log-level"),
    ],
)
def test_a_mistake_is_named_before_anything_starts(options: ServeOptions, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        run(options)


def test_a_plain_start_loads_no_command_line_library() -> None:
    """They cost a third of a second and 20 MB, more than the broker."""
    program = (
        "import sys; from ottla.cli.serve_options import parse_plain; parse_plain(['--port', '1']);"
        "print([name for name in ('typer', 'click', 'rich', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
