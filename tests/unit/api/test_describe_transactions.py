"""DescribeTransactions, from request to answer."""

from __future__ import annotations

import pytest

from ottla.api import describe_transactions
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tests.unit.api.transaction_services import Broker
from tests.unit.core.transactions.coordinator import A0, A1, B0, ID, TIMEOUT_MS


def describe(broker: Broker, *ids: str) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    answer = broker.ask(describe_transactions, request, 0, DescribeTransactionsResponse)
    return list(answer.transaction_states)


@pytest.mark.parametrize("later", [False, True])
def test_a_transaction_is_described(later: bool) -> None:
    broker = Broker(later=later)
    broker.coordinator.init()
    broker.coordinator.begin(0, B0, A1, A0)
    assert describe(broker, ID) == [
        TransactionState(
            transactional_id=ID,
            transaction_state="Ongoing",
            transaction_timeout_ms=TIMEOUT_MS,
            transaction_start_time_ms=broker.coordinator.now_ms,
            producer_id=100,
            producer_epoch=0,
            topics=[TopicData(topic="a", partitions=[0, 1]), TopicData(topic="b", partitions=[0])],
        )
    ]


def test_an_id_without_a_transaction_has_no_start() -> None:
    broker = Broker()
    broker.coordinator.init()
    (state,) = describe(broker, ID)
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])


@pytest.mark.parametrize("later", [False, True])
def test_each_id_has_a_code_of_its_own(later: bool) -> None:
    broker = Broker(later=later)
    broker.coordinator.init()
    broker.transactions.refused["elsewhere"] = ErrorCode.NOT_COORDINATOR
    states = describe(broker, "unknown", "", "elsewhere", ID)
    assert {state.transactional_id: state.error_code for state in states} == {
        "unknown": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        "": ErrorCode.INVALID_REQUEST,
        "elsewhere": ErrorCode.NOT_COORDINATOR,
        ID: ErrorCode.NONE,
    }


def test_very_many_ids_are_described_in_turns() -> None:
    assert len(describe(Broker(), *(["unknown"] * (2 * describe_transactions.IDS_PER_TURN_MAX)))) == 1000


def test_what_is_not_known_of_an_id_is_zero_as_with_kafka() -> None:
    (state,) = describe(Broker(), "unknown")
    assert (state.transaction_start_time_ms, state.producer_id, state.producer_epoch) == (0, 0, 0)
