"""Which record follows which."""

from __future__ import annotations

import pytest

from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.transaction import (
    STATE_NAMES,
    completed,
    created,
    ended,
    extended,
    fenced,
    is_ended_epoch,
    renewed,
)
from tests.unit.core.transactions.coordinator import A0


@pytest.fixture
def ongoing() -> TransactionRecord:
    return extended(created("shop", 7, 1000, 50), frozenset({A0}), 2, 60)


def test_states_are_spelt_as_in_the_protocol() -> None:
    assert STATE_NAMES[TransactionState.PREPARE_EPOCH_FENCE] == "PrepareEpochFence"
    assert STATE_NAMES[TransactionState.EMPTY] == "Empty"


def test_time_does_not_go_back_with_the_clock(ongoing: TransactionRecord) -> None:
    (prepared,) = fenced(ongoing, 2, 10)
    assert prepared.last_update_timestamp == 61
    assert completed(prepared, 10).last_update_timestamp == 61
    assert renewed(completed(prepared, 10), 7, 2, 1000, 10).last_update_timestamp == 61


def test_two_decisions_never_have_the_same_timestamp(ongoing: TransactionRecord) -> None:
    def prepare(known: TransactionRecord) -> TransactionRecord:
        return ended(known, committed=True, transaction_version=0, next_producer_id=-1, now_ms=60)[0]

    first = prepare(ongoing)
    second = prepare(extended(completed(first, 60), frozenset({A0}), 0, 60))
    assert second.last_update_timestamp > first.last_update_timestamp


def test_the_producer_keeps_its_transactions_timeout_and_start(ongoing: TransactionRecord) -> None:
    (prepared,) = fenced(ongoing, 2, 70)
    assert (prepared.timeout_ms, prepared.start_timestamp) == (1000, 60)
    assert completed(prepared, 80).start_timestamp == 60
    assert renewed(completed(prepared, 80), 7, 2, 9, 90).start_timestamp == -1


def test_an_epoch_has_ended_when_the_present_one_came_of_it(ongoing: TransactionRecord) -> None:
    (prepared,) = fenced(ongoing, 2, 70)
    for known in (prepared, completed(prepared, 70)):
        assert is_ended_epoch(known, 7, 0)
        assert not is_ended_epoch(known, 7, 1)
        assert not is_ended_epoch(known, 8, 0)
    assert not is_ended_epoch(renewed(completed(prepared, 70), 7, 1, 9, 90), 7, 0)
