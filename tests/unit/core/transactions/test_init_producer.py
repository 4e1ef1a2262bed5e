"""InitProducerId: who may go on, who is fenced, and what happens to a transaction that is going on."""

from __future__ import annotations

import pytest

from ottla.core.transactions.commands import InitProducerId
from ottla.core.transactions.records import TransactionState
from ottla.model.errors import ErrorCode
from tests.unit.core.transactions.coordinator import A0, ID, TIMEOUT_MS, Coordinator

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
VERSIONS = pytest.mark.parametrize("version", [0, 2])


def test_a_new_id_gets_the_spare_producer_id() -> None:
    coordinator = Coordinator()
    assert coordinator.init() == (100, 0, True)
    assert coordinator.state() is EMPTY
    assert coordinator.known.timeout_ms == TIMEOUT_MS


def test_each_further_producer_gets_the_next_epoch() -> None:
    coordinator = Coordinator()
    coordinator.init()
    assert coordinator.init(timeout_ms=5) == (100, 1, False)
    assert coordinator.known.timeout_ms == 5


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 900_001, 2**31 - 1])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    coordinator = Coordinator()
    assert coordinator.refused(InitProducerId(ID, timeout_ms)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert coordinator.log == []


def test_the_longest_timeout_is_a_config() -> None:
    coordinator = Coordinator(transaction_max_timeout_ms="1000")
    assert coordinator.init(timeout_ms=1000).producer_id == 100
    assert coordinator.refused(InitProducerId(ID, 1001)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_without_a_spare_a_new_id_is_to_ask_again() -> None:
    assert Coordinator().refused(InitProducerId(ID, TIMEOUT_MS)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@VERSIONS
def test_a_transaction_that_goes_on_is_aborted_first(version: int) -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.begin(version)
    before = coordinator.known
    assert coordinator.refused(coordinator.init_command()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.state() is TransactionState.PREPARE_ABORT
    assert coordinator.refused(coordinator.init_command()) is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = coordinator.markers
    assert (markers.producer_id, markers.producer_epoch, markers.committed) == (100, 1, False)
    assert markers.partitions == tuple(sorted(before.partitions))
    coordinator.write_markers()
    assert coordinator.init() == (100, 2, False)


def test_a_transaction_that_is_being_ended_is_waited_for() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.begin(2)
    coordinator.end(2)
    assert coordinator.refused(coordinator.init_command()) is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    assert coordinator.init() == (100, 2, False)


class TestRecovery:
    """KIP-360: a producer that had an error names its id and epoch."""

    def test_the_present_producer_gets_the_next_epoch_and_the_same_when_it_asks_again(self) -> None:
        coordinator = Coordinator()
        coordinator.init()
        assert coordinator.init(100, 0) == (100, 1, False)
        assert coordinator.init(100, 0) == (100, 1, False)
        assert coordinator.init(100, 1) == (100, 2, False)

    def test_a_producer_that_another_one_followed_is_fenced(self) -> None:
        coordinator = Coordinator()
        coordinator.init()
        coordinator.init()
        for epoch in (0, 2, 32_766):
            assert coordinator.refused(coordinator.init_command(100, epoch)) is ErrorCode.PRODUCER_FENCED
        assert coordinator.refused(coordinator.init_command(99, 1)) is ErrorCode.PRODUCER_FENCED
        assert coordinator.identity == (100, 1)

    def test_a_request_that_comes_again_after_another_producer_is_fenced(self) -> None:
        coordinator = Coordinator()
        coordinator.init()
        coordinator.init(100, 0)
        coordinator.init()
        assert coordinator.refused(coordinator.init_command(100, 0)) is ErrorCode.PRODUCER_FENCED

    def test_what_could_not_be_written_is_nobodys_recovery(self) -> None:
        coordinator = Coordinator()
        coordinator.init()
        coordinator.is_writable = False
        assert coordinator.refused(coordinator.init_command(100, 0)) is ErrorCode.NOT_ENOUGH_REPLICAS
        coordinator.is_writable = True
        assert coordinator.init() == (100, 1, False)
        assert coordinator.refused(coordinator.init_command(100, 0)) is ErrorCode.PRODUCER_FENCED

    def test_a_failover_forgets_it_which_fences_the_producer(self) -> None:
        coordinator = Coordinator()
        coordinator.init()
        coordinator.init(100, 0)
        coordinator.fail_over()
        assert coordinator.refused(coordinator.init_command(100, 0)) is ErrorCode.PRODUCER_FENCED
        assert coordinator.init(100, 1) == (100, 2, False)

    def test_a_producer_whose_id_was_forgotten_begins_anew(self) -> None:
        assert Coordinator().init(7, 3) == (100, 0, True)

    @VERSIONS
    def test_its_own_transaction_is_aborted_and_it_goes_on(self, version: int) -> None:
        coordinator = Coordinator()
        coordinator.init()
        coordinator.begin(version)
        assert coordinator.refused(coordinator.init_command(100, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.write_markers()
        assert coordinator.init(100, 0) == (100, 1, False)

    @VERSIONS
    def test_an_outdated_producer_does_not_abort_a_later_transaction(self, version: int) -> None:
        coordinator = Coordinator()
        coordinator.init()
        coordinator.init()
        coordinator.begin(version)
        assert coordinator.refused(coordinator.init_command(100, 0)) is ErrorCode.PRODUCER_FENCED
        assert coordinator.state() is ONGOING

    def test_who_did_not_hear_that_its_transaction_ended_gets_its_epoch(self) -> None:
        coordinator = Coordinator()
        coordinator.init()
        coordinator.begin(2)
        assert coordinator.end(2)[:2] == (100, 1)
        coordinator.write_markers()
        assert coordinator.init(100, 0) == (100, 1, False)
        assert coordinator.state() is EMPTY


class TestExhaustion:
    """There are 32,767 epochs; the last one is for fencing alone."""

    def test_a_new_producer_gets_a_new_id(self) -> None:
        coordinator = Coordinator()
        coordinator.put(producer_id=5, producer_epoch=32_765)
        assert coordinator.init() == (5, 32_766, False)
        assert coordinator.init() == (100, 0, True)
        assert coordinator.known.previous_producer_id == 5

    def test_a_producer_that_recovers_does_too_and_may_ask_again(self) -> None:
        coordinator = Coordinator()
        coordinator.put(producer_id=5, producer_epoch=32_766)
        assert coordinator.init(5, 32_766) == (100, 0, True)
        assert coordinator.init(5, 32_766) == (100, 0, False)
        coordinator.begin(2, A0)
        assert coordinator.refused(coordinator.init_command(5, 32_766)) is ErrorCode.PRODUCER_FENCED
        assert coordinator.state() is ONGOING

    def test_an_outdated_one_does_not(self) -> None:
        coordinator = Coordinator()
        coordinator.put(producer_id=5, producer_epoch=32_766)
        assert coordinator.refused(coordinator.init_command(5, 32_765)) is ErrorCode.PRODUCER_FENCED

    def test_the_last_epoch_fences_and_is_given_to_nobody(self) -> None:
        coordinator = Coordinator()
        coordinator.put(producer_id=5, producer_epoch=32_766)
        coordinator.begin(2)
        assert coordinator.refused(coordinator.init_command()) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert coordinator.markers[0].producer_epoch == 32_767
        coordinator.write_markers()
        assert coordinator.init(5, 32_766) == (100, 0, True)

    def test_without_a_spare_it_is_to_ask_again(self) -> None:
        coordinator = Coordinator()
        coordinator.put(producer_id=5, producer_epoch=32_766)
        assert coordinator.refused(InitProducerId(ID, TIMEOUT_MS)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
