"""A bad row is a letter once, whatever becomes of the task that found it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.deadline import Deadline
from pyspark_ottla import dead_letters
from pyspark_ottla.dead_letters import FIELD, REASON, SOURCE, BadRowError, DeadLetters
from pyspark_ottla.sink_options import Delivery, sink_options
from pyspark_ottla.stream_writer import BATCH_ID, QUERY_ID
from pyspark_ottla.writer import SinkError
from tests.unit.pyspark_ottla.conftest import NewTopic
from tests.unit.pyspark_ottla.tables import rows_of
from tests.unit.pyspark_ottla.test_stream_writer import Died, dying_at

SCHEMA = StructType().add("id", LongType(), nullable=False)
SHOWN_MS_MAX = 10_000
STEPS_MAX = 200
LETTER = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", dead_letters.HEADERS_TYPE),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
    ]
)


class Task:
    """The task of a streaming query that this process runs, as Spark would tell it."""

    def __init__(self, query_id: str | None = "q", batch_id: int = 0, place: int = 0) -> None:
        self.properties = {QUERY_ID: query_id, BATCH_ID: None if query_id is None else str(batch_id)}
        self.place = place

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties[name]

    def partitionId(self) -> int:
        return self.place


class Letters:
    def __init__(self, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bootstrap, self.topic, self._monkeypatch = bootstrap, topic, monkeypatch

    def options(self, delivery: Delivery = Delivery.EXACTLY_ONCE) -> Any:
        return sink_options({"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic}, delivery)

    def run(self, task: Task, *offsets: int, delivery: Delivery = Delivery.EXACTLY_ONCE) -> list[list[bool]]:
        return [list(each.to_pylist()) for each in self.passing(task, *offsets, delivery=delivery)]

    def passing(
        self, task: Task, *offsets: int, delivery: Delivery = Delivery.EXACTLY_ONCE
    ) -> Iterator[pa.BooleanArray]:
        """A column with the bad rows at these offsets and a good one before each, and a column of good ones."""
        self._monkeypatch.setattr(dead_letters, "task_context", lambda: task)
        columns = [pa.array([None, letter(offset)], LETTER) for offset in offsets] + [pa.array([None], LETTER)]
        return DeadLetters(SCHEMA, self.options(delivery), "n").pass_good(iter(columns))

    def offsets(self) -> list[int]:
        """The offsets of the letters that a reader of committed data sees."""
        found = rows_of(
            self.bootstrap, self.topic, "headers", includeHeaders="true", **{"isolation.level": "read_committed"}
        )
        headers = [{header["key"]: header["value"] for header in row["headers"]} for row in found]
        return sorted(int(each[SOURCE + "offset"]) for each in headers)

    def has(self, *offsets: int) -> bool:
        """The end of a transaction shows a little later."""
        deadline = Deadline(SHOWN_MS_MAX)
        while self.offsets() != sorted(offsets) and not deadline.passed():
            pass
        return self.offsets() == sorted(offsets)


def letter(offset: int) -> dict[str, Any]:
    header = {"key": "own", "value": b"h"}
    return {"key": b"k", "value": b"bad", "headers": [header], "topic": "t", "partition": 3, "offset": offset}


@pytest.fixture
def letters(bootstrap: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch) -> Letters:
    return Letters(bootstrap, new_topic(2), monkeypatch)


def test_good_rows_pass_and_bad_ones_are_letters(letters: Letters) -> None:
    assert letters.run(Task(), 5, 6) == [[True, False], [True, False], [True]]
    assert letters.has(5, 6)
    for row in rows_of(letters.bootstrap, letters.topic, "key", "value", "headers", includeHeaders="true"):
        assert (row["key"], row["value"]) == (b"k", b"bad")
        headers = {header["key"]: header["value"].decode() for header in row["headers"]}
        assert list(headers) == ["own", REASON, *(SOURCE + name for name in ("topic", "partition", "offset"))]
        assert headers[REASON].startswith("the value is not JSON")
        assert (headers["ottla.source.topic"], headers["ottla.source.partition"]) == ("t", "3")
        assert FIELD not in headers


def test_a_task_that_is_run_again_sends_nothing_twice(letters: Letters) -> None:
    for _ in range(3):
        letters.run(Task(batch_id=4), 5, 6)
    assert letters.has(5, 6)
    letters.run(Task(batch_id=4, place=1), 7)
    letters.run(Task(batch_id=5), 8)
    letters.run(Task("other"), 5)
    assert letters.has(5, 5, 6, 7, 8)


def test_a_batch_that_is_cut_differently_may_send_twice_and_loses_nothing(letters: Letters) -> None:
    letters.run(Task(), 1, 2)
    letters.run(Task(), 1)
    letters.run(Task(place=1), 2, 3)
    assert set(letters.offsets()) == {1, 2, 3}


def test_a_task_that_dies_at_any_step_and_is_run_again(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, STEPS_MAX):
        has_ended = True
        try:
            with dying_at(step, monkeypatch):
                letters.run(Task(batch_id=step), step)
        except Died:
            has_ended = False
        letters.run(Task(batch_id=step), step)
        assert letters.has(*range(1, step + 1)), f"step {step}"
        if has_ended:
            assert step > 10
            return
    pytest.fail("a task has more steps than the test tries")


def test_a_task_whose_rest_nobody_wants_sends_nothing(letters: Letters) -> None:
    passing: Any = letters.passing(Task(), 1, 2)
    assert next(passing).to_pylist() == [True, False]
    passing.close()
    letters.run(Task(batch_id=1), 3)
    assert letters.has(3)


def test_a_batch_query_sends_whenever_it_runs(letters: Letters) -> None:
    for _ in range(2):
        letters.run(Task(None), 1, delivery=Delivery.AT_LEAST_ONCE)
    assert letters.offsets() == [1, 1]
    with pytest.raises(SinkError, match="this is a batch query"):
        letters.run(Task(None), 1)


def test_a_topic_that_is_not_there_is_made(
    bootstrap: str, cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{new_topic()}-dlq"
    letters = Letters(bootstrap, name, monkeypatch)
    letters.run(Task(), 1)
    assert letters.has(1)
    Admin(cluster).delete_topic(name)


def test_without_a_topic_a_bad_row_is_an_error() -> None:
    column = pa.array([None, letter(9)], LETTER)
    with pytest.raises(BadRowError, match=r"the row at offset 9 of t-3 is bad: the value is not JSON.*bad_rows"):
        list(DeadLetters(SCHEMA, None).pass_good(iter([column])))
    assert [each.to_pylist() for each in DeadLetters(SCHEMA, None).pass_good(iter([column.slice(0, 1)]))] == [[True]]
