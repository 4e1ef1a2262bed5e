"""ListTransactions, from request to answer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api import list_transactions
from ottla.core.transactions.commands import InitProducerId
from ottla.model.errors import ErrorCode
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.unit.api.transaction_services import Broker
from tests.unit.core.transactions.coordinator import ID, TIMEOUT_MS

VERSIONS = pytest.mark.parametrize("version", range(3))


@pytest.fixture
def broker() -> Broker:
    """`shop` has been in a transaction for 5 s, `bank` is idle."""
    broker = Broker()
    broker.coordinator.init()
    broker.coordinator.submit(InitProducerId("bank", TIMEOUT_MS, spare_producer_id=200))
    broker.coordinator.begin(0)
    broker.coordinator.pass_time(5000)
    return broker


def ask(broker: Broker, version: int, **filters: Any) -> ListTransactionsResponse:
    return broker.ask(list_transactions, ListTransactionsRequest(**filters), version, ListTransactionsResponse)


def ids(answer: ListTransactionsResponse) -> set[str]:
    assert answer.error_code == ErrorCode.NONE
    return {state.transactional_id for state in answer.transaction_states}


@VERSIONS
def test_everything_is_listed(broker: Broker, version: int) -> None:
    answer = ask(broker, version)
    assert ids(answer) == {ID, "bank"}
    states = {(state.producer_id, state.transaction_state) for state in answer.transaction_states}
    assert states == {(100, "Ongoing"), (200, "Empty")}


@VERSIONS
def test_states_that_do_not_exist_are_named(broker: Broker, version: int) -> None:
    answer = ask(broker, version, state_filters=["Ongoing", "ongoing", "Odd", "Odd"])
    assert ids(answer) == {ID}
    assert answer.unknown_state_filters == ["ongoing", "Odd"]
    assert ids(ask(broker, version, state_filters=["Odd"])) == set()


@VERSIONS
def test_producer_ids(broker: Broker, version: int) -> None:
    assert ids(ask(broker, version, producer_id_filters=[200, 300])) == {"bank"}


@pytest.mark.parametrize("version", [1, 2])
def test_durations(broker: Broker, version: int) -> None:
    assert ids(ask(broker, version, duration_filter=5000, state_filters=["Ongoing"])) == set()
    assert ids(ask(broker, version, duration_filter=4999, state_filters=["Ongoing"])) == {ID}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("sh.*", {ID}), ("sho", set()), ("", {ID, "bank"}), (None, {ID, "bank"}), ("shop|bank", {ID, "bank"})],
)
def test_patterns_match_the_whole_id(broker: Broker, pattern: str | None, found: set[str]) -> None:
    assert ids(ask(broker, 2, transactional_id_pattern=pattern)) == found


@pytest.mark.parametrize("pattern", ["(", "a" * 10_000, r"(?=x)", "((a{100}){100}){100}"])
def test_a_pattern_that_is_none_or_explodes_is_refused(broker: Broker, pattern: str) -> None:
    answer = ask(broker, 2, transactional_id_pattern=pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@VERSIONS
def test_while_a_coordinator_is_loading_there_is_no_list(broker: Broker, version: int) -> None:
    broker.transactions.refused[""] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(broker, version).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
