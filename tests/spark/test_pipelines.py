"""The example of pipelines runs as its files say: twice, going on where it stopped, and to the record.

Both programs are processes of their own, as their users start them; the batch job that judges them runs in the Spark of
the tests, and is itself shown to notice what is missing, doubled or changed.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import ottla
from tests.spark.conftest import BROKER, STARTS_MAX, TOO_SLOW

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
MODULES = ("steps", "generate", "history", "streaming")
PROGRAM_SECONDS_MAX = 400
ROUNDS = ("2026-03-01T09:00", "2026-03-01T13:00")
RECORDS, USERS, HOURS = 300, 30, 4


class Shop(NamedTuple):
    """A broker of its own, the example's modules, and a directory for what a program keeps."""

    spark: SparkSession
    bootstrap: str
    data: Path
    modules: dict[str, ModuleType]

    def program(self, name: str, *arguments: str) -> str:
        """Run a program of the example to its end; returns what it said."""
        command = [sys.executable, str(PROJECT / name), *arguments]
        # Spark then takes a free port for its server instead of 15002, where another one may listen.
        environment = {**os.environ, "OTTLA_BOOTSTRAP": self.bootstrap, "SPARK_TESTING": "1"}
        for attempt in range(STARTS_MAX):
            code, said = ended(command, environment, self.data.parent)
            # A machine that is too busy for Spark's processes fails the run, which then goes on: as it is meant to be.
            if code == 0 or TOO_SLOW not in said or attempt + 1 == STARTS_MAX:
                break
        assert code == 0, said[-6000:]
        return said

    def generate(self, start: str) -> list[Any]:
        """What `generate.py` wrote for a round."""
        arguments = ["--start", start, "--records", str(RECORDS), "--users", str(USERS), "--hours", str(HOURS)]
        assert f"{2 * RECORDS} records" in self.program("generate.py", *arguments)
        generate, begin, span = self.modules["generate"], datetime.fromisoformat(start), timedelta(hours=HOURS)
        return [*generate.activity(begin, span, RECORDS, USERS), *generate.metrics(begin, span, RECORDS)]

    def table(self, name: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.spark.read.parquet(str(self.data / "lake" / name)).collect()]


def ended(command: list[str], environment: dict[str, str], directory: Path) -> tuple[int, str]:
    """The exit code of a program and what it said. If it takes too long it is killed with all that it started."""
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            said, _ = program.communicate(timeout=PROGRAM_SECONDS_MAX)
        except BaseException:
            os.killpg(program.pid, signal.SIGKILL)
            raise
    return program.returncode, said


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(PROJECT))
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def shop(
    spark: SparkSession, modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    with ottla.Server(process=True, config=BROKER) as server:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", server.bootstrap_servers)
        yield Shop(spark, server.bootstrap_servers, tmp_path / "data", modules)


def came_through(shop: Shop, written: list[Any]) -> None:
    """Every record that was written is in the lake once: clean as it was, or rejected."""
    views = Counter(json.loads(each.value)["user"] for each in written if each.topic == "activity" and is_good(each))
    requests = Counter(json.loads(each.value)["ms"] for each in written if each.topic == "metrics" and is_good(each))
    assert Counter(row["user"] for row in shop.table("activity")) == views
    assert Counter(row["ms"] for row in shop.table("metrics")) == requests
    assert Counter(row["value"] for row in shop.table("rejected")) == Counter(
        each.value for each in written if not is_good(each)
    )


def is_good(message: Any) -> bool:
    """By the generator's own account, not by the rules of the pipeline."""
    return message.value not in sys.modules["generate"].BROKEN


def lake_files(shop: Shop) -> dict[Path, int]:
    return {
        path: path.stat().st_mtime_ns for path in (shop.data / "lake").rglob("*.parquet") if "days" not in path.parts
    }


def test_the_declarative_pipeline_runs_twice(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    written = shop.generate(ROUNDS[0])
    assert "Run is COMPLETED" in shop.program("run.py", "--data", str(shop.data))
    files = lake_files(shop)

    written += shop.generate(ROUNDS[1])
    shop.program("run.py", "--data", str(shop.data))
    came_through(shop, written)
    # What the first run wrote has not been touched: only new records were handled.
    assert files.items() < lake_files(shop).items()
    assert sum(row["views"] for row in shop.table("days")) == len(shop.table("activity"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["history.py", "--data", str(shop.data)])
        shop.modules["history"].main()
    said = capsys.readouterr().out
    assert said.endswith("The streams and the batch agree to the record.\n")
    compared = re.findall(r"^(.+?) +(\d+) rows   agree$", said, re.MULTILINE)
    assert len(compared) == 7
    assert all(int(rows) > 0 for _, rows in compared), said


def test_the_plain_streams_run_twice(shop: Shop) -> None:
    written = shop.generate(ROUNDS[0])
    said = shop.program("streaming.py", "--data", str(shop.data))
    assert [line.split()[0] for line in said.splitlines() if " records in " in line][-1] == "service_minutes"
    files = lake_files(shop)

    written += shop.generate(ROUNDS[1])
    shop.program("streaming.py", "--data", str(shop.data))
    came_through(shop, written)
    assert files.items() < lake_files(shop).items()
    history = shop.modules["history"]
    found = list(history.compare(shop.spark, shop.data / "lake"))
    assert len(found) == 5
    assert all(each.agrees and each.batch_rows for each in found), [(str(each), each.examples) for each in found]
    # A session that was open when the first run ended was found whole by the second.
    between = f"timestamp '{ROUNDS[1]}:00Z' between started and ended"
    assert history.topic_rows(shop.spark, "sessions").where(between).count() > 0


def test_the_batch_job_sees_what_differs(spark: SparkSession, modules: dict[str, ModuleType]) -> None:
    compare = modules["history"].comparison
    batch = spark.createDataFrame([(1, "a"), (2, "b"), (3, None), (3, None)], "n int, s string")
    assert compare("the same", batch, batch)[1:] == (4, 0, 0, [])
    changed = spark.createDataFrame([(1, "a"), (1, "a"), (2, "x"), (3, None)], "n int, s string")
    found = compare("changed", changed, batch)
    # (1, a) is there twice, (2, b) became (2, x), and one (3, null) is gone.
    assert (found.batch_rows, found.missing, found.extra) == (4, 2, 2)
    assert len(found.examples) == 4
    assert not found.agrees


def test_sessions_that_a_late_view_joins(modules: dict[str, ModuleType]) -> None:
    streaming = modules["streaming"]
    minute = 60 * 1_000_000
    views = [streaming.Session(at * minute, at * minute, 1, at) for at in (70, 0, 30, 101, 131)]
    # 30 minutes after another still belong to it; 31 begin a new one, whatever the order.
    assert [
        (each.started // minute, each.ended // minute, each.views, each.cents) for each in streaming.merged(views)
    ] == [
        (0, 30, 2, 30),
        (70, 70, 1, 70),
        (101, 131, 2, 232),
    ]
    joined = streaming.merged([*streaming.merged(views), streaming.Session(50 * minute, 50 * minute, 1, 1)])
    assert [(each.started // minute, each.views) for each in joined] == [(0, 4), (101, 2)]
    assert streaming.Session(0, 1, 1, 0).finished_at_ms() == streaming.GAP_US // 1000 + 1


def test_without_a_broker(tmp_path: Path) -> None:
    """Every program says so, with the address, and touches nothing."""
    environment = {**os.environ, "OTTLA_BOOTSTRAP": "127.0.0.1:1"}
    for name in ("generate.py", "run.py", "streaming.py"):
        code, said = ended([sys.executable, str(PROJECT / name)], environment, tmp_path)
        assert code == 1
        assert "cannot connect to 127.0.0.1:1" in said
        assert "OTTLA_BOOTSTRAP" in said
        assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
