"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import pytest

from ottla.core.transactions.commands import DescribeTransaction, InitProducerId, ListTransactions
from ottla.core.transactions.records import TransactionState
from ottla.model.errors import ErrorCode
from tests.unit.core.transactions.coordinator import ID, TIMEOUT_MS, Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    """`shop` has been in a transaction for 5 s, `bank` is idle."""
    coordinator = Coordinator()
    coordinator.init()
    coordinator.submit(InitProducerId("bank", TIMEOUT_MS, spare_producer_id=200))
    coordinator.begin(0)
    coordinator.pass_time(5000)
    return coordinator


def listed(coordinator: Coordinator, command: ListTransactions) -> set[str]:
    return {transaction.transactional_id for transaction in coordinator.submit(command)}


def test_an_unknown_id_is_not_described(coordinator: Coordinator) -> None:
    assert coordinator.refused(DescribeTransaction("other")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_without_filters_everything_is_listed(coordinator: Coordinator) -> None:
    transactions = coordinator.submit(ListTransactions())
    assert sorted(transactions) == [
        ("bank", 200, TransactionState.EMPTY),
        (ID, 100, TransactionState.ONGOING),
    ]


@pytest.mark.parametrize(
    ("command", "ids"),
    [
        (ListTransactions(states=frozenset({TransactionState.ONGOING})), {ID}),
        (ListTransactions(states=frozenset()), set()),
        (ListTransactions(producer_ids=frozenset({200, 7})), {"bank"}),
        (ListTransactions(duration_ms=4999), {ID, "bank"}),
        (ListTransactions(duration_ms=5000), {"bank"}),
        (ListTransactions(matches=lambda name: name.startswith("s")), {ID}),
        (ListTransactions(states=frozenset({TransactionState.EMPTY}), producer_ids=frozenset({100})), set()),
    ],
)
def test_every_filter_has_to_let_it_pass(coordinator: Coordinator, command: ListTransactions, ids: set[str]) -> None:
    assert listed(coordinator, command) == ids
