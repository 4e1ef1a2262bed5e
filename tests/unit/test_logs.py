"""The log of a broker, as a process of its own writes it to standard error."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import logs

TIMESTAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
PROGRAM = """
import logging, sys, warnings
from ottla import logs
logs.configure({format!r}, {level!r})
assert "rich" not in sys.modules
import structlog
log = structlog.get_logger("ottla.server")
"""


def written(code: str, format: str = "console", level: str = "info") -> list[str]:
    """The lines that a process writes which sets its log up and runs some code."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(format=format, level=level) + code],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_an_event_is_one_line_that_people_can_read() -> None:
    (line,) = written('log.warning("connection closed", peer="10.0.0.7", reason="two words", left_out=3)')
    assert re.fullmatch(
        TIMESTAMP + r" warning  ottla\.server +connection closed  peer=10\.0\.0\.7 reason='two words' left_out=3", line
    )


def test_an_event_is_one_object_that_machines_can_read() -> None:
    lines = written('log.info("ready", port=9092, names=["a"], path=__import__("pathlib").Path("/x"))', "json")
    event = json.loads(lines[0])
    assert list(event)[:4] == ["timestamp", "level", "logger", "event"]
    assert re.fullmatch(TIMESTAMP, event.pop("timestamp"))
    assert event == {
        "level": "info",
        "logger": "ottla.server",
        "event": "ready",
        "port": 9092,
        "names": ["a"],
        "path": "/x",
    }


def test_a_logger_without_a_name_is_the_brokers() -> None:
    (line,) = written('structlog.get_logger().info("hello")', "json")
    assert json.loads(line)["logger"] == "ottla"


@pytest.mark.parametrize(
    ("level", "expected"),
    [("debug", ["d", "i", "w", "e"]), ("info", ["i", "w", "e"]), ("warning", ["w", "e"]), ("error", ["e"])],
)
def test_the_level_decides_what_is_written(level: str, expected: list[str]) -> None:
    code = """
for source in (log, logging.getLogger("library")):
    source.debug("d"); source.info("i"); source.warning("w"); source.error("e")
"""
    events = [json.loads(line) for line in written(code, "json", level)]
    assert [event["event"] for event in events] == expected * 2
    assert {event["logger"] for event in events} == {"ottla.server", "library"}


def test_the_standard_library_writes_the_same_lines() -> None:
    code = 'logging.getLogger("asyncio").warning("took %d s", 3); warnings.warn("old", stacklevel=1)'
    slow, warning = (json.loads(line) for line in written(code, "json"))
    assert (slow["event"], slow["level"], slow["logger"]) == ("took 3 s", "warning", "asyncio")
    assert re.fullmatch(TIMESTAMP, slow["timestamp"])
    assert warning["logger"] == "py.warnings"
    assert "old" in warning["event"]


FAIL = """
try:
    {}["missing"]
except KeyError as error:
    log.error("request failed", api="Fetch", exc_info=error)
    logging.getLogger("library").exception("failed too")
"""


def test_a_failure_carries_its_traceback() -> None:
    for event in map(json.loads, written(FAIL, "json")):
        assert event["exception"].startswith("Traceback")
        assert event["exception"].endswith("KeyError: 'missing'")
        assert "exc_info" not in event


def test_a_traceback_is_indented_under_its_event() -> None:
    lines = written(FAIL)
    events = [line for line in lines if re.match(TIMESTAMP, line)]
    assert len(events) == 2
    assert "api=Fetch" in events[0]
    assert all(line.startswith("    ") for line in lines if line not in events)
    assert lines.count("    KeyError: 'missing'") == 2


HOSTILE = r"a\nfake line\x1b[2J\x9b31m\u2028\r"


@pytest.mark.parametrize("format", ["console", "json"])
def test_no_client_can_write_a_line_of_its_own(format: str) -> None:
    """What a client calls itself ends up in the log, and must not pass for an event or drive a terminal."""
    code = f"""
hostile = "{HOSTILE}"
log.warning("refused", client_id=hostile)
log.warning(hostile)
logging.getLogger("library").warning(hostile)
try:
    raise ValueError(hostile)
except ValueError as error:
    log.error("failed", exc_info=error)
"""
    lines = written(code, format)
    assert not any(mark in line for line in lines for mark in "\x1b\x9b\u2028\r")
    if format == "json":
        assert [json.loads(line)["level"] for line in lines] == ["warning"] * 3 + ["error"]
    else:
        assert sum(bool(re.match(TIMESTAMP, line)) for line in lines) == 4
        assert all(line.startswith("    ") for line in lines if not re.match(TIMESTAMP, line))


@pytest.mark.parametrize("format", ["console", "json"])
def test_no_value_is_too_odd_to_be_written(format: str) -> None:
    code = """
class Odd:
    def __str__(self): return "odd one"
log.info("odd", a=Odd(), b=b"raw", c={1: {2}}, d=float("nan"), e=None, f="", g="\\ud800", h=2**70)
log.info("next")
"""
    lines = written(code, format)
    assert len(lines) == 2
    assert "odd" in lines[0]


def test_a_reader_that_went_away_stops_nobody() -> None:
    code = """
import os
os.close(2)
log.info("unheard")
logging.getLogger("x").error("unheard")
sys.stderr.close()
log.info("unheard")
"""
    assert written(code) == []


def on_a_terminal(code: str, **environment: str) -> str:
    """What a terminal is sent."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(format="console", level="info") + code],
            stderr=theirs,
            check=True,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        return os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in on_a_terminal('log.info("ready")')
    assert "\x1b[" not in on_a_terminal('log.info("ready")', NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal('log.info("ready")', TERM="dumb")
    assert not any("\x1b[" in line for line in written('log.info("ready")'))


def embedded(code: str) -> list[str]:
    """What a program writes that has a broker in it."""
    program = f"import logging, structlog\nfrom ottla import logs\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8")
    return (done.stdout + done.stderr).splitlines()


def test_an_embedded_broker_leaves_the_log_to_the_program_around_it() -> None:
    code = """
logs.configure_for_embedding()
log = structlog.get_logger("ottla.server")
log.info("hidden")
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
log.info("100% ready", port=9092)
log.debug("hidden")
logging.getLogger("ottla").setLevel(logging.ERROR)
log.warning("hidden")
"""
    assert embedded(code) == ["ottla.server INFO 100% ready  port=9092"]


def test_an_embedded_broker_says_why_it_failed() -> None:
    code = """
logging.basicConfig()
logs.configure_for_embedding()
try:
    1 / 0
except ZeroDivisionError as error:
    structlog.get_logger("ottla.server").error("failed", exc_info=error)
"""
    lines = embedded(code)
    assert lines[0] == "ERROR:ottla.server:failed"
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_an_embedded_broker_does_not_touch_a_structlog_that_is_configured() -> None:
    code = """
structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
logs.configure_for_embedding()
structlog.get_logger("ottla.server").info("theirs", port=1)
"""
    assert embedded(code) == ["port=1 event='theirs'"]


def test_setting_up_costs_no_other_library() -> None:
    """`ottla serve` starts fast: rich alone would double its imports."""
    code = "from ottla import logs, __file__\nimport sys\nprint(sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert "'structlog'" not in done.stdout
    assert "'rich'" not in done.stdout


def test_rich_is_there_for_others_afterwards() -> None:
    assert written("import rich; assert rich.__file__") == []


def test_the_levels_are_those_of_the_command_line() -> None:
    source = Path(logs.__file__).with_name("cli") / "serve_options.py"
    assert str(tuple(logs.LEVELS)).replace("'", '"') in source.read_text("utf-8")
    assert logs.LEVELS["info"] == logging.INFO
