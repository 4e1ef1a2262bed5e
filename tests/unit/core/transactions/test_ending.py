"""EndTxn in both flows, and how a transaction is completed."""

from __future__ import annotations

import pytest

from ottla.core.transactions.commands import EndTxn, MarkersWritten, VerifyPartitions
from ottla.core.transactions.ending import COMPLETION_RETRY_MS
from ottla.core.transactions.records import TransactionState
from ottla.model.errors import ErrorCode
from tests.unit.core.transactions.coordinator import A0, A1, B0, ID, Coordinator

COMMITTED = pytest.mark.parametrize("committed", [False, True])
VERSIONS = pytest.mark.parametrize("version", [0, 2])
PREPARE = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.init()
    return coordinator


@COMMITTED
@VERSIONS
def test_a_transaction_ends(coordinator: Coordinator, version: int, committed: bool) -> None:
    epoch = 1 if version == 2 else 0
    coordinator.begin(version, A0, B0)
    assert coordinator.end(version, committed=committed) == (100, epoch, False)
    assert coordinator.state() is PREPARE[committed]
    (markers,) = coordinator.markers
    assert markers[:5] == (ID, 100, epoch, committed, (A0, B0))
    assert markers.transaction_version == version
    coordinator.write_markers()
    assert coordinator.state() is COMPLETE[committed]
    assert coordinator.known.partitions == frozenset()
    assert coordinator.identity == (100, epoch)


@COMMITTED
@VERSIONS
def test_the_same_again_is_answered_as_done(coordinator: Coordinator, version: int, committed: bool) -> None:
    coordinator.begin(version)
    again = coordinator.end_command(100, 0, version, committed=committed)
    ended = coordinator.submit(again)
    assert coordinator.refused(again) is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    written = len(coordinator.log)
    assert coordinator.submit(again) == ended
    assert len(coordinator.log) == written


@COMMITTED
@VERSIONS
def test_the_opposite_is_refused(coordinator: Coordinator, version: int, committed: bool) -> None:
    coordinator.begin(version)
    coordinator.end(version, committed=committed)
    opposite = coordinator.end_command(100, 0, version, committed=not committed)
    assert coordinator.refused(opposite) is ErrorCode.INVALID_TXN_STATE
    coordinator.write_markers()
    assert coordinator.refused(opposite) is ErrorCode.INVALID_TXN_STATE


@VERSIONS
def test_strangers_are_refused(coordinator: Coordinator, version: int) -> None:
    coordinator.begin(version)
    cases = {
        (ID, 100, 1): ErrorCode.PRODUCER_FENCED,
        (ID, 100, -1): ErrorCode.PRODUCER_FENCED,
        (ID, 99, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ("other", 100, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
    for who, code in cases.items():
        assert coordinator.refused(EndTxn(*who, True, version)) is code
    assert coordinator.state() is TransactionState.ONGOING


@COMMITTED
def test_a_delayed_request_never_touches_a_later_transaction(coordinator: Coordinator, committed: bool) -> None:
    coordinator.begin(2)
    delayed = coordinator.end_command(100, 0, 2, committed=committed)
    coordinator.submit(delayed)
    coordinator.write_markers()
    coordinator.begin(2, A1)
    assert coordinator.refused(delayed) is ErrorCode.PRODUCER_FENCED
    assert coordinator.state() is TransactionState.ONGOING


@VERSIONS
def test_a_commit_of_nothing_is_refused(coordinator: Coordinator, version: int) -> None:
    assert coordinator.refused(coordinator.end_command(100, 0, version)) is ErrorCode.INVALID_TXN_STATE


def test_an_abort_of_nothing_is_refused_for_older_clients(coordinator: Coordinator) -> None:
    command = coordinator.end_command(100, 0, 0, committed=False)
    assert coordinator.refused(command) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("after", [None, True, False])
def test_an_abort_of_nothing_gives_newer_clients_an_epoch(coordinator: Coordinator, after: bool | None) -> None:
    if after is not None:
        coordinator.begin(2)
        coordinator.end(2, committed=after)
        coordinator.write_markers()
    producer_id, epoch = coordinator.identity
    abort = coordinator.end_command(producer_id, epoch, 2, committed=False)
    assert coordinator.submit(abort) == (producer_id, epoch + 1, False)
    assert coordinator.state() is TransactionState.COMPLETE_ABORT
    assert coordinator.markers == []
    assert coordinator.submit(abort) == (producer_id, epoch + 1, False)
    assert [record.state for record in coordinator.log[-2:]] == [PREPARE[False], COMPLETE[False]]


def test_a_commit_of_nothing_after_a_transaction_is_refused(coordinator: Coordinator) -> None:
    coordinator.begin(2)
    coordinator.end(2)
    coordinator.write_markers()
    assert coordinator.refused(coordinator.end_command(100, 1, 2)) is ErrorCode.INVALID_TXN_STATE


def test_a_zombie_is_not_told_of_what_an_older_client_did_after_it(coordinator: Coordinator) -> None:
    coordinator.init()
    coordinator.begin(0)
    coordinator.end(0)
    assert coordinator.refused(coordinator.end_command(100, 0, 2)) is ErrorCode.PRODUCER_FENCED
    coordinator.write_markers()
    assert coordinator.refused(coordinator.end_command(100, 0, 2)) is ErrorCode.PRODUCER_FENCED


@COMMITTED
def test_with_the_last_epoch_comes_a_new_producer_id(committed: bool) -> None:
    coordinator = Coordinator()
    coordinator.put(producer_id=5, producer_epoch=32_766)
    coordinator.begin(2)
    end = coordinator.end_command(5, 32_766, 2, committed=committed)
    assert coordinator.submit(end) == (100, 0, True)
    assert coordinator.refused(end) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.markers[0][:4] == (ID, 5, 32_767, committed)
    assert coordinator.known.next_producer_id == 100
    coordinator.fail_over()
    coordinator.write_markers()
    assert coordinator.identity == (100, 0)
    assert (coordinator.known.previous_producer_id, coordinator.known.next_producer_id) == (5, -1)
    assert coordinator.submit(end) == (100, 0, False)
    coordinator.begin(2)
    assert coordinator.refused(end) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_with_a_new_id_waits_for_the_transaction_before_and_goes_on() -> None:
    """It was told of its new id when the decision was made, and every client takes another error for the end."""
    coordinator = Coordinator()
    coordinator.put(producer_id=5, producer_epoch=32_766)
    coordinator.begin(2)
    coordinator.end(2)
    commands = (
        coordinator.add_command(100, 0, 2, A0),
        VerifyPartitions(ID, 100, 0, frozenset((A0,)), add=True),
        VerifyPartitions(ID, 100, 0, frozenset((A0,)), add=False),
        coordinator.end_command(100, 0, 2, committed=False),
        coordinator.init_command(100, 0),
    )
    for command in commands:
        assert coordinator.refused(command) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.refused(coordinator.add_command(99, 0, 2, A0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    coordinator.write_markers()
    coordinator.submit(commands[0])
    assert coordinator.identity == (100, 0)
    assert coordinator.state() is TransactionState.ONGOING


def test_without_a_spare_the_last_epoch_is_to_ask_again() -> None:
    coordinator = Coordinator()
    coordinator.put(producer_id=5, producer_epoch=32_766)
    coordinator.begin(2)
    assert coordinator.refused(EndTxn(ID, 5, 32_766, True, 2)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.state() is TransactionState.ONGOING


def test_the_epoch_that_is_for_fencing_is_given_to_nobody() -> None:
    coordinator = Coordinator()
    coordinator.put(producer_id=5, producer_epoch=32_766)
    coordinator.begin(2)
    coordinator.pass_time(100_000)
    coordinator.write_markers()
    assert coordinator.identity == (5, 32_767)
    assert coordinator.refused(coordinator.end_command(5, 32_766, 2, committed=False)) is ErrorCode.PRODUCER_FENCED


class TestMarkers:
    """From the decision to its end."""

    def test_they_may_come_one_by_one_and_again(self, coordinator: Coordinator) -> None:
        coordinator.begin(0, A0, A1, B0)
        coordinator.end(0)
        (markers,) = coordinator.markers
        for partitions in ([A0], [A0], [], [B0, A0]):
            coordinator.submit(markers.written(partitions))
            assert coordinator.state() is TransactionState.PREPARE_COMMIT
        coordinator.submit(markers.written([A1]))
        assert coordinator.state() is TransactionState.COMPLETE_COMMIT
        written = len(coordinator.log)
        coordinator.submit(markers.written([A1]))
        assert len(coordinator.log) == written

    def test_those_of_an_earlier_transaction_do_not_count(self, coordinator: Coordinator) -> None:
        coordinator.begin(0, A0)
        coordinator.end(0)
        (first,) = coordinator.markers
        coordinator.write_markers()
        coordinator.begin(0, A0)
        coordinator.end(0)  # Within the same millisecond, with the same id and epoch.
        coordinator.submit(first.written([A0]))
        assert coordinator.state() is TransactionState.PREPARE_COMMIT

    @pytest.mark.parametrize("transactional_id", [ID, "other"])
    def test_those_of_nobody_are_passed_over(self, coordinator: Coordinator, transactional_id: str) -> None:
        coordinator.submit(MarkersWritten(transactional_id, 100, 0, [A0], coordinator.now_ms))
        assert len(coordinator.log) == 1

    def test_they_are_due_again_after_a_failover(self, coordinator: Coordinator) -> None:
        coordinator.begin(2, A0, B0)
        coordinator.end(2)
        before = coordinator.markers
        coordinator.submit(before[0].written([A0]))
        coordinator.fail_over()
        assert coordinator.markers == before
        coordinator.submit(before[0].written([A0, B0]))
        assert coordinator.state() is TransactionState.COMPLETE_COMMIT

    def test_a_completion_that_could_not_be_written_is_tried_again(self, coordinator: Coordinator) -> None:
        coordinator.begin(0)
        coordinator.end(0)
        coordinator.is_writable = False
        coordinator.write_markers()
        coordinator.pass_time(COMPLETION_RETRY_MS)
        assert coordinator.state() is TransactionState.PREPARE_COMMIT
        coordinator.is_writable = True
        coordinator.pass_time(COMPLETION_RETRY_MS)
        assert coordinator.state() is TransactionState.COMPLETE_COMMIT

    def test_a_transaction_without_partitions_is_completed_after_a_load(self) -> None:
        coordinator = Coordinator()
        coordinator.put(producer_id=5, producer_epoch=1, state=TransactionState.PREPARE_ABORT, start_timestamp=1)
        coordinator.fail_over()
        assert coordinator.markers == []
        coordinator.pass_time(1)
        assert coordinator.state() is TransactionState.COMPLETE_ABORT


# -- what the cluster's level says


def test_at_level_0_a_client_of_version_2_is_refused_and_nothing_changes(coordinator: Coordinator) -> None:
    coordinator.begin(2)
    coordinator.transaction_version = 0
    written = len(coordinator.log)
    assert coordinator.refused(coordinator.end_command(100, 0, 2)) is ErrorCode.UNSUPPORTED_VERSION
    assert coordinator.refused(coordinator.add_command(100, 0, 2, A1)) is ErrorCode.UNSUPPORTED_VERSION
    assert len(coordinator.log) == written
    assert coordinator.end(0) == (100, 0, False)


def test_what_was_ended_at_a_higher_level_is_answered_and_completed_at_level_0(coordinator: Coordinator) -> None:
    coordinator.begin(2)
    again = coordinator.end_command(100, 0, 2)
    ended = coordinator.submit(again)
    coordinator.transaction_version = 0
    coordinator.write_markers()
    assert coordinator.state() is TransactionState.COMPLETE_COMMIT
    assert coordinator.submit(again) == ended


@pytest.mark.parametrize("level", [0, 1, 2])
def test_clients_of_the_older_flow_are_served_at_every_level(coordinator: Coordinator, level: int) -> None:
    coordinator.transaction_version = level
    coordinator.begin(0)
    assert coordinator.end(0) == (100, 0, False)


def test_at_level_1_a_client_may_insist_on_version_2(coordinator: Coordinator) -> None:
    coordinator.transaction_version = 1
    coordinator.begin(2)
    assert coordinator.end(2) == (100, 1, False)
