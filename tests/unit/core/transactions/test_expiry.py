"""Transactions that take too long, and transactional ids that nobody uses."""

from __future__ import annotations

import pytest

from ottla.core.transactions.commands import InitProducerId, ListTransactions
from ottla.core.transactions.expiry import EXPIRED_CHARACTERS_PER_TICK_MAX, EXPIRED_IDS_PER_TICK_MAX
from ottla.core.transactions.records import TransactionState
from ottla.model.errors import ErrorCode
from tests.unit.core.transactions.coordinator import A0, TIMEOUT_MS, Coordinator

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.init()
    return coordinator


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_has_its_timeout_and_no_longer(coordinator: Coordinator, version: int) -> None:
    coordinator.begin(version)
    coordinator.pass_time(TIMEOUT_MS)
    assert coordinator.state() is TransactionState.ONGOING
    coordinator.pass_time(1)
    assert coordinator.state() is TransactionState.PREPARE_ABORT
    assert coordinator.identity == (100, 1)
    assert coordinator.markers[0].committed is False
    assert coordinator.refused(coordinator.end_command(100, 0, 0)) is ErrorCode.PRODUCER_FENCED
    coordinator.write_markers()
    assert coordinator.refused(coordinator.end_command(100, 0, 0)) is ErrorCode.PRODUCER_FENCED
    assert coordinator.refused(coordinator.add_command(100, 0, version, A0)) is ErrorCode.PRODUCER_FENCED


def test_a_newer_client_cannot_commit_it_but_may_go_on_by_aborting(coordinator: Coordinator) -> None:
    coordinator.begin(2)
    coordinator.pass_time(TIMEOUT_MS + 1)
    coordinator.write_markers()
    assert coordinator.refused(coordinator.end_command(100, 0, 2)) is ErrorCode.INVALID_TXN_STATE
    assert coordinator.submit(coordinator.end_command(100, 0, 2, committed=False)) == (100, 1, False)


def test_more_partitions_give_no_more_time(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.pass_time(TIMEOUT_MS - 1)
    coordinator.begin(0, A0)
    coordinator.pass_time(2)
    assert coordinator.state() is TransactionState.PREPARE_ABORT


def test_the_next_transaction_has_a_time_of_its_own(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.pass_time(TIMEOUT_MS - 1)
    coordinator.end(0)
    coordinator.write_markers()
    coordinator.begin(0)
    coordinator.pass_time(TIMEOUT_MS)
    assert coordinator.state() is TransactionState.ONGOING


def test_time_goes_on_through_a_failover(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.pass_time(TIMEOUT_MS)
    coordinator.fail_over()
    coordinator.pass_time(1)
    assert coordinator.state() is TransactionState.PREPARE_ABORT


def test_an_abort_that_could_not_be_written_is_tried_again(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.is_writable = False
    coordinator.pass_time(TIMEOUT_MS + 9_000)
    coordinator.is_writable = True
    coordinator.pass_time(900)
    assert coordinator.state() is TransactionState.ONGOING
    coordinator.pass_time(200)
    assert coordinator.state() is TransactionState.PREPARE_ABORT


def test_an_id_that_nobody_uses_is_forgotten(coordinator: Coordinator) -> None:
    coordinator.pass_time(7 * DAY_MS - HOUR_MS)
    assert coordinator.identity == (100, 0)
    coordinator.pass_time(2 * HOUR_MS)
    assert coordinator.log[-1].gone
    assert coordinator.refused(coordinator.add_command(100, 0, 0, A0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.init() == (101, 0, True)


def test_an_id_in_use_is_not(coordinator: Coordinator) -> None:
    for _ in range(3):
        coordinator.pass_time(4 * DAY_MS)
        coordinator.init()
    assert coordinator.identity == (100, 3)


@pytest.mark.parametrize(("level", "answer"), [(0, "fenced"), (1, "fenced"), (2, "goes on")])
def test_who_was_timed_out_goes_on_where_transactions_have_epochs(
    coordinator: Coordinator, level: int, answer: str
) -> None:
    """As in Kafka, whose coordinator aborts by the cluster's level: below 2 a producer is simply fenced."""
    coordinator.transaction_version = level
    coordinator.begin(0)
    coordinator.pass_time(TIMEOUT_MS + 1)
    (markers,) = coordinator.markers
    assert (markers.producer_epoch, markers.transaction_version) == (1, level)
    coordinator.write_markers()
    if answer == "fenced":
        assert coordinator.refused(coordinator.init_command(100, 0)) is ErrorCode.PRODUCER_FENCED
    else:
        assert coordinator.init(100, 0)[:2] == (100, 1)


def test_an_id_whose_markers_are_not_written_is_not(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.pass_time(30 * DAY_MS)
    assert coordinator.state() is TransactionState.PREPARE_ABORT


def test_expiry_is_looked_for_as_often_as_the_config_says() -> None:
    coordinator = Coordinator(
        transactional_id_expiration_ms="1000", transaction_remove_expired_transaction_cleanup_interval_ms="700"
    )
    coordinator.init()
    coordinator.pass_time(1399)
    assert not coordinator.log[-1].gone
    coordinator.pass_time(1)
    assert coordinator.log[-1].gone


@pytest.mark.parametrize("id_length", [10, 20_000])
def test_very_many_are_forgotten_a_few_at_a_time(id_length: int) -> None:
    coordinator = Coordinator()
    count = 2 * EXPIRED_IDS_PER_TICK_MAX + 1
    for number in range(count):
        coordinator.submit(InitProducerId(f"{number:0{id_length}}", TIMEOUT_MS, spare_producer_id=number))
    coordinator.now_ms += 30 * DAY_MS
    tombstones = coordinator.shard.tick(coordinator.now_ms).records
    assert len(tombstones) <= EXPIRED_IDS_PER_TICK_MAX
    assert sum(len(t.transactional_id) for t in tombstones) <= EXPIRED_CHARACTERS_PER_TICK_MAX + id_length
    coordinator.pass_time(0)
    assert coordinator.submit(ListTransactions()) == []
    assert coordinator.shard.table.idle == {}


def test_tombstones_that_could_not_be_written_come_later(coordinator: Coordinator) -> None:
    coordinator.is_writable = False
    coordinator.pass_time(8 * DAY_MS)
    assert coordinator.identity == (100, 0)
    coordinator.is_writable = True
    coordinator.pass_time(HOUR_MS)
    assert coordinator.log[-1].gone
