"""The guide's programs do what the guide says. Only addresses and directories are the test's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client.deadline import Deadline
from tests.spark.conftest import STREAM_SECONDS_MAX, TOO_SLOW, Lab, connector_jars
from tests.spark.test_json_topics import letters, produce
from tests.spark.test_sink import committed

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "spark.md"
SECURED = "secured = {"
ELSEWHERE = ("# a client, in a process of its own", SECURED)
"""Begin what needs a Connect server or a Kafka with logins; test_connect.py and test_security.py have these."""


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def guide(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A broker as `ottla serve` starts it, which makes topics when they are first written to."""
    with ottla.Server(process=True) as server:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", server.bootstrap_servers)
        partitions = lab.spark.conf.get("spark.sql.shuffle.partitions")
        yield Lab(lab.spark, server.bootstrap_servers, lab.directory)
        lab.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))  # `session()` sets its own


def test_the_programs_of_the_guide(
    guide: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in ("orders", "alerts"):
        guide.topic(name=topic)
    rows = [{"id": 1, "customer": "ann", "amount": 2.5}, {"id": 2, "customer": "bob", "amount": "much"}]
    produce(guide, "orders", rows)
    names: dict[str, Any] = {}
    added: list[Any] = []
    manager = type(guide.spark.streams)
    add_listener = manager.addListener

    def remember(streams: Any, listener: Any) -> None:
        added.append(listener)
        add_listener(streams, listener)

    monkeypatch.setattr(manager, "addListener", remember)
    for program in programs():
        if program.startswith(ELSEWHERE) or ('format("kafka")' in program and not connector_jars()):
            continue
        text = program.replace("127.0.0.1:9092", guide.bootstrap).replace(
            ', "checkpoint', f', "{guide.directory}/checkpoint'
        )
        run(text, names)
    said = capsys.readouterr().out
    assert "hello" in said
    assert "struct<amount:string,customer:string,id:bigint>" in said
    assert committed(guide, "loud-greetings") == ["HELLO", "HI"]
    assert committed(guide, "order-amounts") == ['{"id":1,"amount":2.5}']
    assert [headers["ottla.error.field"] for _, _, headers in letters(guide, "orders-bad")] == ["amount"]
    if connector_jars():
        check_real_time(guide, names["alerts"])
    assert [type(listener).__name__ for listener in added] == ["LagListener"]
    guide.spark.streams.removeListener(added[0])


def run(text: str, names: dict[str, Any]) -> None:
    """A block of the guide, in the names that the ones before it made."""
    for _ in range(4):
        try:
            exec(compile(text, str(GUIDE), "exec"), names)
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
        else:
            return


def check_real_time(guide: Lab, query: Any) -> None:
    """Records are there before the batch that they belong to has ended."""
    try:
        deadline = Deadline(1000 * STREAM_SECONDS_MAX)
        while sorted(guide.values("alerts")) != ["HELLO", "HI"]:
            assert query.isActive, query.exception()
            assert not deadline.passed()
    finally:
        query.stop()
