"""Batches in a transaction that another process may end, and what each answer to its end means."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from ottla.client.cluster import Cluster
from ottla.client.deadline import Deadline
from ottla.client.errors import BrokerError
from ottla.client.groups import GroupAdmin
from ottla.client.offsets import LATEST, Isolation, list_offsets
from ottla.client.settings import ClientSettings
from ottla.client.transactional_writer import Ended, PreparedTransaction, TransactionalWriter, end_transaction
from ottla.model.ids import TopicPartition
from ottla.wire.batch import TRANSACTIONAL_BIT
from ottla.wire.records import Record, build_batch

TIMEOUT_MS = 60_000
WAIT_MS_MAX = 20_000
NewTopic = Callable[..., str]


def batch_of(*values: bytes) -> bytearray:
    return build_batch([Record(n, 1, None, value, ()) for n, value in enumerate(values)], attributes=TRANSACTIONAL_BIT)


def writer_of(cluster: Cluster, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> TransactionalWriter:
    writer = TransactionalWriter(cluster, transactional_id, timeout_ms=timeout_ms)
    writer.begin()
    return writer


def stable_end(cluster: Cluster, partition: TopicPartition) -> int:
    """Up to where readers of committed data may read."""
    return list_offsets(cluster, {partition: LATEST}, Isolation.READ_COMMITTED)[partition].offset


def await_stable_end(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    """A marker is written a moment after its request is answered."""
    deadline = Deadline(WAIT_MS_MAX)
    while stable_end(cluster, partition) < offset and not deadline.passed():
        pass
    assert stable_end(cluster, partition) == offset


@pytest.fixture
def transactional_id() -> str:
    return f"writer-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def partition(new_topic: NewTopic) -> TopicPartition:
    return TopicPartition(new_topic(2), 0)


def written(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> PreparedTransaction:
    writer = writer_of(cluster, transactional_id)
    writer.submit(partition, batch_of(b"a", b"b"), 2)
    return writer.prepare()


def test_nothing_shows_before_the_end_and_all_of_it_after(
    cluster: Cluster, bootstrap: str, transactional_id: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    writer = writer_of(cluster, transactional_id)
    for partition in partitions:
        for _ in range(3):
            writer.submit(partition, batch_of(b"a", b"b"), 2)
    prepared = writer.prepare()
    assert prepared.partitions == tuple(partitions)
    assert writer.queued_bytes == 0
    assert [stable_end(cluster, partition) for partition in partitions] == [0, 0]
    with Cluster(ClientSettings.of(bootstrap)) as another_process:
        assert end_transaction(another_process, prepared, commit=True) is Ended.DONE
    for partition in partitions:
        await_stable_end(cluster, partition, 7)  # six records and a marker


def test_an_end_may_be_repeated(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> None:
    prepared = written(cluster, transactional_id, partition)
    for _ in range(3):
        assert end_transaction(cluster, prepared, commit=True) is Ended.DONE
    assert end_transaction(cluster, prepared, commit=False) is not Ended.DONE
    await_stable_end(cluster, partition, 3)


def test_an_abort_leaves_nothing_to_commit(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> None:
    prepared = written(cluster, transactional_id, partition)
    assert end_transaction(cluster, prepared, commit=False) is Ended.DONE
    assert end_transaction(cluster, prepared, commit=False) is Ended.DONE
    assert end_transaction(cluster, prepared, commit=True) is not Ended.DONE
    await_stable_end(cluster, partition, 3)


def test_whoever_takes_the_id_over_aborts_what_is_open(
    cluster: Cluster, transactional_id: str, partition: TopicPartition
) -> None:
    first = writer_of(cluster, transactional_id)
    first.submit(partition, batch_of(b"a"), 1)
    prepared = first.prepare()
    second = writer_of(cluster, transactional_id)
    assert end_transaction(cluster, prepared, commit=True) is Ended.FENCED
    await_stable_end(cluster, partition, 2)
    second.submit(partition, batch_of(b"b"), 1)
    assert end_transaction(cluster, second.prepare(), commit=True) is Ended.DONE
    assert end_transaction(cluster, prepared, commit=True) is Ended.FENCED
    await_stable_end(cluster, partition, 4)


def test_a_writer_that_is_locked_out_cannot_write(
    cluster: Cluster, transactional_id: str, partition: TopicPartition
) -> None:
    first = writer_of(cluster, transactional_id)
    first.submit(partition, batch_of(b"a"), 1)
    first.prepare()
    writer_of(cluster, transactional_id)
    first.submit(partition, batch_of(b"b"), 1)
    with pytest.raises(BrokerError, match=r"EPOCH|FENCED|TXN_STATE"):
        first.prepare()
    await_stable_end(cluster, partition, 2)


def test_an_end_after_the_time_out_is_refused(
    cluster: Cluster, transactional_id: str, partition: TopicPartition
) -> None:
    writer = writer_of(cluster, transactional_id, timeout_ms=1)
    writer.submit(partition, batch_of(b"a"), 1)
    prepared = writer.prepare()
    await_stable_end(cluster, partition, 2)
    assert end_transaction(cluster, prepared, commit=True) is not Ended.DONE


def test_an_abort_by_the_writer_itself(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> None:
    writer = writer_of(cluster, transactional_id)
    writer.abort()  # nothing was written
    writer.submit(partition, batch_of(b"a"), 1)
    writer.prepare()
    writer.abort()
    await_stable_end(cluster, partition, 2)


def test_an_offset_is_committed_with_its_transaction(
    cluster: Cluster, transactional_id: str, partition: TopicPartition
) -> None:
    groups, group_id = GroupAdmin(cluster), f"group-{transactional_id}"
    for commit, offset in ((False, 5), (True, 6)):
        writer = writer_of(cluster, transactional_id)
        writer.submit(partition, batch_of(b"a"), 1)
        prepared = writer.prepare()
        writer.note(group_id, partition, offset, "said")
        assert partition not in groups.fetch_offsets(group_id)
        assert end_transaction(cluster, prepared, commit=commit) is Ended.DONE
        found = groups.fetch_offsets(group_id, [partition], require_stable=True)
        assert (partition in found) == commit
    assert found[partition].offset == 6
    assert found[partition].metadata == "said"


def test_an_empty_transaction_has_no_end(cluster: Cluster, transactional_id: str) -> None:
    prepared = writer_of(cluster, transactional_id).prepare()
    assert prepared.is_empty
    assert end_transaction(cluster, prepared, commit=True) is Ended.DONE


def test_an_id_that_nobody_knows(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> None:
    unknown = PreparedTransaction(transactional_id, 7, 0, (partition,))
    assert end_transaction(cluster, unknown, commit=True) is Ended.FENCED
