"""AddPartitionsToTxn, from request to answer."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ottla.api import add_partitions_to_txn, turns
from ottla.api.add_partitions_to_txn import TRANSACTIONS_PER_TURN_MAX
from ottla.core.transactions.commands import AddPartitions, InitProducerId
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tests.unit.api.transaction_services import Broker
from tests.unit.api.turns import Turns
from tests.unit.core.transactions.coordinator import A0, A1, B0, ID, TIMEOUT_MS

CLIENTS = pytest.mark.parametrize("version", range(4))
BROKERS = pytest.mark.parametrize("version", [4, 5])
NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
Codes = dict[TopicPartition, int]


def topics(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions]


def codes(results: Iterable[AddPartitionsToTxnTopicResult]) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
        for topic in results
        for partition in topic.results_by_partition
    }


def of_client(broker: Broker, version: int, *partitions: TopicPartition, epoch: int = 0, name: str = ID) -> Codes:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=100,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics(partitions),
    )
    answer = broker.ask(add_partitions_to_txn, request, version, AddPartitionsToTxnResponse)
    return codes(answer.results_by_topic_v3_and_below)


def of_broker(broker: Broker, version: int, *transactions: AddPartitionsToTxnTransaction) -> dict[str, Codes]:
    request = AddPartitionsToTxnRequest(transactions=list(transactions))
    answer = broker.ask(add_partitions_to_txn, request, version, AddPartitionsToTxnResponse)
    assert answer.error_code == NONE
    return {result.transactional_id: codes(result.topic_results) for result in answer.results_by_transaction}


def transaction(
    *partitions: TopicPartition, name: str = ID, epoch: int = 0, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=100,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=topics(partitions),
    )


@CLIENTS
@pytest.mark.parametrize("later", [False, True])
def test_a_client_adds_partitions(version: int, later: bool) -> None:
    broker = Broker(later=later)
    broker.coordinator.init()
    assert of_client(broker, version, A0, B0) == {A0: NONE, B0: NONE}
    assert broker.coordinator.known.partitions == {A0, B0}
    assert broker.coordinator.known.client_transaction_version == 0


@CLIENTS
def test_one_that_is_unknown_stops_all(version: int) -> None:
    broker = Broker()
    broker.coordinator.init()
    for unknown in (TopicPartition("a", 2), TopicPartition("a", -1), TopicPartition("x", 0)):
        assert of_client(broker, version, A0, unknown) == {
            A0: ErrorCode.OPERATION_NOT_ATTEMPTED,
            unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    assert broker.coordinator.known.partitions == frozenset()


@CLIENTS
def test_a_client_has_no_business_in_internal_topics(version: int) -> None:
    broker = Broker()
    broker.coordinator.init()
    internal = TopicPartition("__consumer_offsets", 0)
    assert of_client(broker, version, internal) == {internal: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@CLIENTS
def test_which_clients_are_refused(version: int) -> None:
    broker = Broker()
    assert of_client(broker, version, A0) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    broker.coordinator.init()
    assert of_client(broker, version, A0, name="") == {A0: ErrorCode.INVALID_REQUEST}
    fenced = FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert of_client(broker, version, A0, B0, epoch=1) == {A0: fenced, B0: fenced}


@BROKERS
@pytest.mark.parametrize("later", [False, True])
def test_a_broker_asks_about_several_transactions(version: int, later: bool) -> None:
    broker = Broker(later=later)
    broker.coordinator.init()
    broker.coordinator.submit(InitProducerId("other", TIMEOUT_MS, spare_producer_id=100))
    broker.coordinator.begin(0, A0)
    answers = of_broker(
        broker,
        version,
        transaction(A0, A1, verify_only=True),
        transaction(B0, TopicPartition("__consumer_offsets", 1), name="other"),
        transaction(A0, name="unknown"),
        transaction(A0, name=""),
    )
    assert answers == {
        ID: {A0: NONE, A1: ErrorCode.TRANSACTION_ABORTABLE},
        "other": {B0: NONE, TopicPartition("__consumer_offsets", 1): NONE},
        "unknown": {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        "": {A0: ErrorCode.INVALID_REQUEST},
    }
    assert broker.coordinator.shard.table.transactions["other"].client_transaction_version == 2


@BROKERS
def test_a_broker_hears_what_is_wrong_with_each(version: int) -> None:
    broker = Broker()
    broker.coordinator.init()
    unknown = TopicPartition("x", 0)
    for verify_only in (False, True):
        assert of_broker(broker, version, transaction(A0, epoch=1, verify_only=verify_only)) == {ID: {A0: FENCED}}
        assert of_broker(broker, version, transaction(A0, unknown, verify_only=verify_only))[ID] == {
            A0: ErrorCode.OPERATION_NOT_ATTEMPTED,
            unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


def test_very_many_transactions_are_asked_about_in_turns() -> None:
    names = [f"t{number}" for number in range(2 * TRANSACTIONS_PER_TURN_MAX + 1)]
    answers = of_broker(Broker(), 5, *(transaction(A0, name=name) for name in names))
    assert list(answers) == names


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("verify_only", [False, True])
def test_others_have_their_turn_while_transactions_of_very_many_partitions_are_asked_about(
    monkeypatch: pytest.MonkeyPatch, later: bool, verify_only: bool
) -> None:
    monkeypatch.setattr(add_partitions_to_txn, "PARTITIONS_PER_TURN_MAX", 6)
    broker, counted = Broker(later=later), Turns(monkeypatch, turns)
    names = [f"t{number}" for number in range(10)]
    for name in names:
        broker.coordinator.submit(InitProducerId(name, TIMEOUT_MS, spare_producer_id=100))
        broker.coordinator.submit(AddPartitions(name, 100, 0, frozenset((A0, A1, B0)), 2))
    transactions = broker.services.transactions
    monkeypatch.setattr(transactions, "submit", counted.counted(transactions.submit))
    asked = [transaction(A0, A1, B0, name=name, verify_only=verify_only) for name in names]
    assert of_broker(broker, 5, *asked) == {name: {A0: NONE, A1: NONE, B0: NONE} for name in names}
    assert (counted.calls, counted.most_calls) == (10, 2)


def test_a_transaction_of_more_partitions_than_a_turn_has_time_for_is_asked_about_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(add_partitions_to_txn, "PARTITIONS_PER_TURN_MAX", 1)
    broker, unknown = Broker(), TopicPartition("x", 0)
    broker.coordinator.init()
    assert of_broker(broker, 5, transaction(A0, A1, unknown))[ID][A0] == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert broker.coordinator.known.partitions == frozenset()
    assert of_broker(broker, 5, transaction(A0, A1, B0)) == {ID: {A0: NONE, A1: NONE, B0: NONE}}
    assert broker.coordinator.known.partitions == {A0, A1, B0}
