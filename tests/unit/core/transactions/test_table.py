"""What a record changes, and what follows from it."""

from __future__ import annotations

import pytest

from ottla.core.transactions.records import TransactionState
from tests.unit.core.transactions.coordinator import ID, Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.init()
    return coordinator


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_a_record_that_nobody_writes_is_passed_over(coordinator: Coordinator, state: TransactionState) -> None:
    before = coordinator.known
    coordinator.put(producer_id=9, producer_epoch=9, state=state)
    assert coordinator.known == before


@pytest.mark.parametrize("version", [0, 2])
def test_a_tombstone_takes_everything_with_it(coordinator: Coordinator, version: int) -> None:
    for is_prepared in (False, True):
        coordinator.init()
        coordinator.init(*coordinator.identity)
        coordinator.begin(version)
        if is_prepared:
            coordinator.end(version)
        coordinator.put(gone=True)
        table = coordinator.shard.table
        for held in (table.transactions, table.idle, table.unmarked, table.recoveries):
            assert not held
        assert len(table.timers) == 1  # Expiry.


def test_each_marker_is_given_out_once(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.end(0)
    assert [markers.transactional_id for markers in coordinator.markers] == [ID]
    assert coordinator.shard.markers_due() == []


def test_a_load_gives_out_nothing_of_what_is_over(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.end(0)
    coordinator.write_markers()
    assert coordinator.load().markers_due() == []


def test_ids_are_idle_in_the_order_of_their_last_update(coordinator: Coordinator) -> None:
    coordinator.put(transactional_id="second", producer_id=1, producer_epoch=0, last_update_timestamp=5)
    assert list(coordinator.shard.table.idle) == [ID, "second"]
    coordinator.begin(0)
    assert list(coordinator.shard.table.idle) == ["second"]
    coordinator.end(0)
    coordinator.write_markers()
    assert list(coordinator.shard.table.idle) == ["second", ID]
