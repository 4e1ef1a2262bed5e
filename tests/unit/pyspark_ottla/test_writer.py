"""Writing tasks without Spark's Java side: at least once, and all or nothing for a batch job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.deadline import Deadline
from ottla.client.errors import BrokerError, ClientError
from pyspark_ottla import writer as module
from pyspark_ottla.sink_options import Delivery, SinkOptions, sink_options
from pyspark_ottla.writer import BatchWriter, SinkError, WrittenMessage, task_context, write_at_least_once
from tests.unit.pyspark_ottla.tables import rows_of, table_of

NewTopic = Callable[..., str]
SHOWN_MS_MAX = 10_000


def options_of(bootstrap: str, topic: str, **given: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": bootstrap, "topic": topic, **given}, Delivery.AT_LEAST_ONCE)


def values(bootstrap: str, topic: str) -> Counter[bytes]:
    rows = rows_of(bootstrap, topic, "value", **{"isolation.level": "read_committed"})
    return Counter(row["value"] for row in rows)


def shown(bootstrap: str, topic: str, expected: Counter[bytes]) -> bool:
    """The end of a transaction shows a little later."""
    deadline = Deadline(SHOWN_MS_MAX)
    while values(bootstrap, topic) != expected and not deadline.passed():
        pass
    return values(bootstrap, topic) == expected


@pytest.mark.parametrize("changes", [{}, {"kafka.acks": "1"}, {"kafka.compression.type": "zstd"}])
def test_rows_are_stored_when_a_task_ends(bootstrap: str, new_topic: NewTopic, changes: dict[str, str]) -> None:
    topic = new_topic(3)
    tables = [table_of([f"{part}-{row}" for row in range(50)]) for part in range(20)]
    message = write_at_least_once(iter(tables), options_of(bootstrap, topic, **changes), 4)
    assert (message.sink_partition, message.rows, message.prepared) == (4, 1000, None)
    assert values(bootstrap, topic) == Counter(f"{part}-{row}".encode() for part in range(20) for row in range(50))


def test_a_batch_that_the_topic_does_not_take(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1, max_message_bytes="2000")
    tables = [table_of(["x" * 900] * 9)]
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        write_at_least_once(iter(tables), options_of(bootstrap, topic), 0)
    write_at_least_once(iter(tables), options_of(bootstrap, topic, **{"kafka.batch.size": "1500"}), 0)
    assert values(bootstrap, topic) == Counter({b"x" * 900: 9})


def test_a_topic_that_is_not_there(bootstrap: str) -> None:
    options = options_of(bootstrap, "no such/topic", **{"kafka.default.api.timeout.ms": "1000"})
    with pytest.raises(ClientError, match="no such/topic"):
        write_at_least_once(iter([table_of(["x"])]), options, 0)


def test_a_batch_job_in_transactions(bootstrap: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(2)
    job = BatchWriter(options_of(bootstrap, topic, delivery="exactly_once"))
    messages: list[Any] = []
    for partition in (0, 1):
        monkeypatch.setattr(
            module, "task_context", lambda number=partition: SimpleNamespace(partitionId=lambda: number)
        )
        messages.append(job.write(iter([table_of([f"row-{partition}"])])))
    assert not values(bootstrap, topic)
    job.commit(messages)
    assert shown(bootstrap, topic, Counter({b"row-0": 1, b"row-1": 1}))
    with pytest.raises(SinkError, match="was aborted before it could be committed"):
        job.commit([_aborted(job, monkeypatch)])
    assert shown(bootstrap, topic, Counter({b"row-0": 1, b"row-1": 1}))


def _aborted(job: BatchWriter, monkeypatch: pytest.MonkeyPatch) -> WrittenMessage:
    monkeypatch.setattr(module, "task_context", lambda: SimpleNamespace(partitionId=lambda: 7))
    message: Any = job.write(iter([table_of(["given up"], partition=pa.array([0], pa.int32()))]))
    job.abort([message, None])
    assert isinstance(message, WrittenMessage)
    return message


def test_a_writer_outside_of_a_task() -> None:
    with pytest.raises(SinkError, match="written by Spark's tasks"):
        task_context()
