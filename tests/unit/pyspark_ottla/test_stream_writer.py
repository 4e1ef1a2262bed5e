"""Exactly once: whatever step a driver or a task dies at, a batch that is run again is there once, and whole."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.transactional_writer import Ended, end_transaction
from pyspark_ottla import reader
from pyspark_ottla.batch_progress import TRANSACTIONS_PER_SHARD, BatchProgress, Decision, Producer
from pyspark_ottla.sink_options import Delivery, sink_options
from pyspark_ottla.stream_writer import StreamMessage, StreamWriter
from pyspark_ottla.writer import SinkError
from tests.unit.pyspark_ottla.conftest import NewTopic
from tests.unit.pyspark_ottla.tables import rows_of, table_of

ROWS_PER_TASK = 3
TASKS = (0, 1)
STEPS_MAX = 400
SHOWN_MS_MAX = 10_000
PREFIX = "ottla-spark"


class Died(BaseException):
    """The process is gone."""


class Query:
    """A streaming query as Spark runs it: the tasks of a batch, then its commit, each time from nothing."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self.bootstrap, self.topic, self.id = bootstrap, topic, str(uuid.uuid4())
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **options}
        self.options = sink_options(given, Delivery.EXACTLY_ONCE)

    def values(self, batch: int, task: int) -> list[str]:
        return [f"{batch}.{task}.{row}" for row in range(ROWS_PER_TASK)]

    def write(self, batch: int, task: int) -> StreamMessage:
        values = self.values(batch, task)
        tables = [table_of(values[:1], partition=pa.array([task % 2], pa.int32())), table_of([]), table_of(values[1:])]
        return StreamWriter(self.options).write_once(iter(tables), self.id, batch, task)

    def run(self, batch: int, tasks: tuple[int, ...] = TASKS) -> None:
        messages: list[Any] = [self.write(batch, task) for task in tasks]
        StreamWriter(self.options).commit(messages, batch)

    def expected(self, *batches: int, tasks: tuple[int, ...] = TASKS) -> Counter[str]:
        return Counter(value for batch in batches for task in tasks for value in self.values(batch, task))

    def committed(self) -> Counter[str]:
        """What a reader of committed data sees."""
        found = rows_of(self.bootstrap, self.topic, "value", **{"isolation.level": "read_committed"})
        return Counter(row["value"].decode() for row in found)

    def is_committed(self, expected: Counter[str]) -> bool:
        """Whether readers of committed data see this and no more. The end of a transaction shows a little later."""
        deadline = Deadline(SHOWN_MS_MAX)
        while self.committed() != expected and not deadline.passed():
            pass
        return self.committed() == expected

    def progress(self, cluster: Cluster) -> BatchProgress:
        return BatchProgress(cluster, PREFIX, self.id)

    def die(self) -> None:
        """Nothing of a process outlives it."""
        reader.drop_cluster(self.options.settings)


@pytest.fixture
def query(bootstrap: str, new_topic: NewTopic) -> Query:
    return Query(bootstrap, new_topic(2))


@contextmanager
def dying_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Die at a step; steps are the moment before each request and the one after each answer. Gives the steps so far."""
    done = 0

    def take_step() -> None:
        nonlocal done
        done += 1
        if done == step:
            raise Died

    def before(real: Any) -> Any:
        def dies(*given: Any, **named: Any) -> Any:
            take_step()
            return real(*given, **named)

        return dies

    def after(real: Any) -> Any:
        def dies(*given: Any, **named: Any) -> Any:
            answer = real(*given, **named)
            take_step()
            return answer

        return dies

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send_raw", before(Connection.send_raw))
        patched.setattr(Connection, "receive", after(Connection.receive))
        yield lambda: done


def run_until(step: int, query: Query, batch: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a batch that dies at a step; true if it ended before it."""
    try:
        with dying_at(step, monkeypatch):
            query.run(batch)
    except Died:
        query.die()
        return False
    return True


def test_a_batch_is_there_once_and_whole_after_a_crash_at_any_step(
    bootstrap: str, cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, before = new_topic(2), Counter[str]()
    for step in range(1, STEPS_MAX):
        query = Query(bootstrap, topic)
        has_ended = run_until(step, query, 0, monkeypatch)
        if query.progress(cluster).decision().batch_id < 0:
            assert query.committed() == before, f"visible before the decision, step {step}"
        query.run(0)
        before += query.expected(0)
        assert query.is_committed(before), f"step {step}"
        if has_ended:
            assert step > 40
            return
    pytest.fail("the batch has more steps than the test tries")


@pytest.mark.parametrize("second", [7, 23, 31, 47, 53, 61, 67, 71])
def test_the_next_batch_is_right_after_two_crashes(second: int, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.run(0)
    for step in (59, second, second + 1):
        run_until(step, query, 1, monkeypatch)
    query.run(1)
    query.run(2)
    assert query.is_committed(query.expected(0, 1, 2))


def test_nothing_is_visible_before_the_commit_and_a_lost_driver_leaves_nothing(query: Query) -> None:
    for task in TASKS:
        query.write(0, task)
    assert not query.committed()
    query.run(0)
    assert query.is_committed(query.expected(0))


def test_a_batch_that_is_run_again_writes_nothing(query: Query, cluster: Cluster) -> None:
    query.run(0)
    message = query.write(0, 1)
    assert message.prepared is None
    assert message.rows == 0
    StreamWriter(query.options).commit([query.write(0, 0), message], 0)
    assert query.is_committed(query.expected(0))
    assert query.progress(cluster).committed_batch(1) == 0


def test_an_abort_gives_up_what_is_not_decided(query: Query, cluster: Cluster) -> None:
    message = query.write(0, 0)
    StreamWriter(query.options).abort([message, None], 0)
    assert message.prepared is not None
    assert end_transaction(cluster, message.prepared, commit=True) is not Ended.DONE
    query.run(0)
    assert query.is_committed(query.expected(0))


def test_an_abort_leaves_what_is_decided(query: Query, cluster: Cluster) -> None:
    messages = [query.write(0, task) for task in TASKS]
    decide(query, cluster, messages)
    StreamWriter(query.options).abort(list(messages), 0)
    again = [query.write(0, task) for task in TASKS]
    assert [message.prepared for message in again] == [None, None]
    assert query.is_committed(query.expected(0))


def decide(query: Query, cluster: Cluster, messages: list[StreamMessage]) -> Decision:
    """The first half of a commit."""
    transactions = {message.sink_partition: message.prepared for message in messages if message.prepared is not None}
    anchor = next(iter(transactions.values())).partitions[0]
    decision = Decision(0, len(messages), anchor._replace(partition=0))
    producers = {place: Producer(each.producer_id, each.producer_epoch) for place, each in transactions.items()}
    query.progress(cluster).decide(decision, producers)
    return decision


def test_a_task_of_a_dead_driver_takes_a_decided_transaction_away_and_the_rerun_writes_it_again(
    query: Query, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[Any] = [query.write(0, task) for task in TASKS]
    with pytest.raises(Died), dying_at(6, monkeypatch):  # It has the id, and has written nothing yet.
        query.write(0, 1)
    query.die()
    with pytest.raises(SinkError, match="was aborted before it could be committed"):
        StreamWriter(query.options).commit(messages, 0)
    assert query.is_committed(query.expected(0, tasks=(0,)))
    query.run(0)
    assert query.is_committed(query.expected(0))


def test_two_runs_at_the_same_time_write_once(query: Query) -> None:
    first: list[Any] = [query.write(0, task) for task in TASKS]
    second: list[Any] = [query.write(0, task) for task in TASKS]
    with pytest.raises(SinkError, match="another run of this query"):
        StreamWriter(query.options).commit(first, 0)
    StreamWriter(query.options).commit(second, 0)
    assert query.is_committed(query.expected(0))


def test_a_task_that_looked_before_the_commit_and_wrote_after_it_writes_nothing(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BatchProgress.decision

    def slow(progress: BatchProgress) -> Decision:
        seen = real(progress)
        monkeypatch.setattr(BatchProgress, "decision", real)
        query.run(0)
        return seen

    monkeypatch.setattr(BatchProgress, "decision", slow)
    assert query.write(0, 0).prepared is None
    assert query.is_committed(query.expected(0))


def test_a_transaction_whose_time_is_up_is_written_again(query: Query, cluster: Cluster) -> None:
    messages = [query.write(0, task) for task in TASKS]
    decide(query, cluster, messages)
    assert messages[1].prepared is not None
    end_transaction(cluster, messages[1].prepared, commit=False)  # as the coordinator does
    query.run(0)
    assert query.is_committed(query.expected(0))


def test_a_batch_cut_into_fewer_tasks_is_finished(query: Query, cluster: Cluster) -> None:
    decide(query, cluster, [query.write(0, task) for task in (0, 1, 2)])
    query.run(0, tasks=(0,))
    assert query.is_committed(query.expected(0, tasks=(0, 1, 2)))


def test_a_batch_cut_into_more_tasks_is_not_written_twice(query: Query) -> None:
    query.run(0)
    query.run(0, tasks=(0, 1, 2, 3))
    assert query.is_committed(query.expected(0))


def test_a_batch_that_is_cut_differently_and_lost_a_part_is_refused(query: Query, cluster: Cluster) -> None:
    messages = [query.write(0, task) for task in (0, 1, 2)]
    decide(query, cluster, messages)
    assert messages[2].prepared is not None
    end_transaction(cluster, messages[2].prepared, commit=False)
    with pytest.raises(SinkError, match="was cut into 3 tasks when it was first written, and now into 1"):
        query.run(0, tasks=(0,))
    query.run(0, tasks=(0, 1, 2))
    assert query.is_committed(query.expected(0, tasks=(0, 1, 2)))


def test_an_old_checkpoint_is_refused(query: Query) -> None:
    for batch in (0, 1):
        query.run(batch)
    with pytest.raises(SinkError, match=r"batch 0 of query .* but batch 1 is in the cluster already"):
        query.run(0)


def test_a_task_without_rows_opens_no_transaction(query: Query) -> None:
    message = StreamWriter(query.options).write_once(iter([table_of([])]), query.id, 0, 0)
    assert message.prepared is None
    StreamWriter(query.options).commit([message], 0)
    assert not query.committed()


def test_a_row_that_cannot_be_written_leaves_no_transaction_open(query: Query) -> None:
    tables = [table_of(["fine"]), table_of(["no"], partition=pa.array([7], pa.int32()))]
    with pytest.raises(ValueError, match="partition"):
        StreamWriter(query.options).write_once(iter(tables), query.id, 0, 0)
    query.run(0)
    assert query.is_committed(query.expected(0))


def test_more_tasks_than_one_note_holds(query: Query, cluster: Cluster) -> None:
    progress, count = query.progress(cluster), 2 * TRANSACTIONS_PER_SHARD + 3
    producers = {place: Producer(2**62 + place, 32_000) for place in range(count) if place % 7}
    query.run(0)
    decision = Decision(1, count, progress.decision().anchor)
    progress.decide(decision, producers)
    assert progress.decision() == decision
    assert progress.all_decided(decision) == producers
    assert progress.decided(decision, count - 1) == producers.get(count - 1)
    assert progress.decided(decision, 0) is None
