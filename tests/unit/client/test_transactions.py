"""A transaction is ended by whoever may end it, and by nobody else."""

from __future__ import annotations

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError, NotFoundError
from ottla.client.transactions import OpenTransaction, TransactionAdmin
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages import describe_producers as producers
from ottla.wire.messages import describe_transactions as described
from ottla.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.client.scripted_broker import TOPIC
from tests.unit.client.scripted_coordinator import ScriptedCoordinator

PRODUCER_ID = 41
PARTITION = TopicPartition(TOPIC, 0)


def scripted(state: str, partitions: tuple[int, ...] = (0,), *, listed: bool = True) -> ScriptedCoordinator:
    """A coordinator with one transactional id, and a partition that has a transaction of it open at offset 10."""
    broker = ScriptedCoordinator()
    shown = described.TransactionState(
        transactional_id="x",
        transaction_state=state,
        transaction_timeout_ms=7_000,
        transaction_start_time_ms=1,
        producer_id=PRODUCER_ID,
        producer_epoch=3,
        topics=[described.TopicData(topic=TOPIC, partitions=partitions)] if partitions else [],
    )
    broker.on(DescribeTransactionsRequest, lambda _: DescribeTransactionsResponse(transaction_states=[shown]))
    entry = TransactionState(transactional_id="x", producer_id=PRODUCER_ID, transaction_state=state)
    states = [entry] if listed else []
    broker.on(ListTransactionsRequest, lambda _: ListTransactionsResponse(transaction_states=states))
    known = [
        producers.ProducerState(producer_id=9, producer_epoch=0, coordinator_epoch=-1),
        producers.ProducerState(
            producer_id=PRODUCER_ID,
            producer_epoch=3,
            coordinator_epoch=-1,
            current_txn_start_offset=10,
            last_timestamp=5,
        ),
    ]
    partition = producers.PartitionResponse(partition_index=0, active_producers=known)
    topic = producers.TopicResponse(name=TOPIC, partitions=[partition])
    broker.on(DescribeProducersRequest, lambda _: DescribeProducersResponse(topics=[topic]))
    broker.on(WriteTxnMarkersRequest, lambda _: marked(0))
    broker.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=4))
    return broker


def marked(code: int) -> WriteTxnMarkersResponse:
    result = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = WritableTxnMarkerTopicResult(name=TOPIC, partitions=[result])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=PRODUCER_ID, topics=[topic])])


def test_the_coordinator_aborts_and_is_asked_until_it_has() -> None:
    with scripted("Ongoing") as broker, Cluster(broker.settings()) as cluster:
        busy = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        broker.answers_in_turn(InitProducerIdRequest, [busy, busy, InitProducerIdResponse(producer_id=PRODUCER_ID)])
        assert TransactionAdmin(cluster).abort("x") is True
        sent = [(one.transactional_id, one.transaction_timeout_ms) for one in broker.asked(InitProducerIdRequest)]
        assert sent == [("x", 7_000)] * 3


def test_an_idle_producer_is_not_disturbed() -> None:
    with scripted("CompleteCommit", ()) as broker, Cluster(broker.settings()) as cluster:
        assert TransactionAdmin(cluster).abort("x") is False
        assert broker.asked(InitProducerIdRequest) == []


def test_a_commit_is_not_undone() -> None:
    with scripted("PrepareCommit") as broker, Cluster(broker.settings()) as cluster:
        with pytest.raises(BrokerError, match="too late"):
            TransactionAdmin(cluster).abort("x")
        assert broker.asked(InitProducerIdRequest) == []


def test_an_id_that_nobody_knows_is_not_made_by_aborting_it() -> None:
    none = described.TransactionState(transactional_id="x", error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    with scripted("Ongoing") as broker, Cluster(broker.settings()) as cluster:
        broker.on(DescribeTransactionsRequest, lambda _: DescribeTransactionsResponse(transaction_states=[none]))
        with pytest.raises(NotFoundError, match="'x'"):
            TransactionAdmin(cluster).abort("x")
        assert broker.asked(InitProducerIdRequest) == []


@pytest.mark.parametrize(
    ("partitions", "listed", "hangs"),
    [((0,), True, False), ((1,), True, True), ((), True, True), ((0,), False, True)],
)
def test_a_transaction_hangs_when_no_coordinator_will_end_it(
    partitions: tuple[int, ...], listed: bool, hangs: bool
) -> None:
    with scripted("Ongoing", partitions, listed=listed) as broker, Cluster(broker.settings()) as cluster:
        admin = TransactionAdmin(cluster)
        ((asked, found),) = admin.open_transactions([PARTITION])
        assert (asked, found) == (1, [OpenTransaction(PARTITION, PRODUCER_ID, 3, -1, 10, 5)])
        assert admin.hanging(found) == (found if hangs else [])


def test_a_hanging_transaction_gets_its_marker() -> None:
    with scripted("Empty", (), listed=False) as broker, Cluster(broker.settings()) as cluster:
        moved = marked(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.answers_in_turn(WriteTxnMarkersRequest, [moved, marked(0)])
        TransactionAdmin(cluster).abort_hanging(PARTITION, 10)
        (marker,) = broker.asked(WriteTxnMarkersRequest)[-1].markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (PRODUCER_ID, 3, 0)
        assert marker.transaction_result is False


def test_a_transaction_that_its_coordinator_knows_gets_no_marker() -> None:
    with scripted("Ongoing") as broker, Cluster(broker.settings()) as cluster:
        with pytest.raises(BrokerError, match="ottla txn abort x"):
            TransactionAdmin(cluster).abort_hanging(PARTITION, 10)
        assert broker.asked(WriteTxnMarkersRequest) == []


def test_a_transaction_that_is_not_there_gets_no_marker() -> None:
    with (
        scripted("Ongoing") as broker,
        Cluster(broker.settings()) as cluster,
        pytest.raises(NotFoundError, match="offset 11"),
    ):
        TransactionAdmin(cluster).abort_hanging(PARTITION, 11)


def test_an_old_broker_is_not_asked_for_what_it_would_ignore() -> None:
    with scripted("Ongoing") as broker, Cluster(broker.settings()) as cluster:
        broker.offered[66] = (0, 0)
        admin = TransactionAdmin(cluster)
        assert [listed.transactional_id for listed in admin.list_transactions(["Ongoing"])] == ["x"]
        with pytest.raises(BrokerError, match="too old"):
            admin.list_transactions(running_ms=5)
