"""Adding partitions to a transaction, and asking whether they are in it."""

from __future__ import annotations

import pytest

from ottla.core.transactions.commands import VerifyPartitions
from ottla.core.transactions.records import TransactionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from tests.unit.core.transactions.coordinator import A0, A1, B0, ID, Coordinator


def verify(coordinator: Coordinator, *partitions: TopicPartition, add: bool = False) -> VerifyPartitions:
    return VerifyPartitions(ID, *coordinator.identity, frozenset(partitions), add)


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.init()
    return coordinator


@pytest.mark.parametrize("version", [0, 2])
def test_the_first_partition_begins_a_transaction(coordinator: Coordinator, version: int) -> None:
    coordinator.begin(version, A0)
    assert coordinator.state() is TransactionState.ONGOING
    assert coordinator.known.start_timestamp == coordinator.now_ms
    assert coordinator.known.client_transaction_version == version
    coordinator.pass_time(10)
    coordinator.begin(version, A0, B0)
    assert coordinator.known.partitions == {A0, B0}
    assert coordinator.known.start_timestamp == coordinator.now_ms - 10


def test_what_is_in_it_already_is_not_written_again(coordinator: Coordinator) -> None:
    coordinator.begin(0, A0, B0)
    written = len(coordinator.log)
    coordinator.begin(0, B0)
    assert coordinator.submit(verify(coordinator, A0, add=True)) == {A0: ErrorCode.NONE}
    assert len(coordinator.log) == written


def test_a_later_transaction_begins_with_no_partitions(coordinator: Coordinator) -> None:
    coordinator.begin(0, A0)
    coordinator.end(0)
    coordinator.write_markers()
    coordinator.begin(0, B0)
    assert coordinator.known.partitions == {B0}


@pytest.mark.parametrize("add", [False, True])
def test_strangers_are_refused(coordinator: Coordinator, add: bool) -> None:
    parts = frozenset((A0,))
    cases = {
        (ID, 100, 1): ErrorCode.PRODUCER_FENCED,
        (ID, 100, -1): ErrorCode.PRODUCER_FENCED,
        (ID, 99, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ("other", 100, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
    for who, code in cases.items():
        assert coordinator.refused(VerifyPartitions(*who, parts, add)) is code
    assert coordinator.state() is TransactionState.EMPTY


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("version", [0, 2])
def test_nothing_begins_while_markers_are_being_written(
    coordinator: Coordinator, version: int, committed: bool
) -> None:
    coordinator.begin(version)
    coordinator.end(version, committed=committed)
    for command in (
        coordinator.add_command(*coordinator.identity, version, A1),
        verify(coordinator, A1, add=True),
        verify(coordinator, A0),
    ):
        assert coordinator.refused(command) is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    coordinator.begin(version, A1)


def test_verification_adds_nothing(coordinator: Coordinator) -> None:
    assert coordinator.submit(verify(coordinator, A0)) == {A0: ErrorCode.TRANSACTION_ABORTABLE}
    coordinator.begin(0, A0)
    answer = coordinator.submit(verify(coordinator, A0, A1))
    assert answer == {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}
    assert coordinator.known.partitions == {A0}


def test_verification_of_new_clients_adds(coordinator: Coordinator) -> None:
    assert coordinator.submit(verify(coordinator, A0, A1, add=True)) == {A0: ErrorCode.NONE, A1: ErrorCode.NONE}
    assert coordinator.known.partitions == {A0, A1}
    assert coordinator.known.client_transaction_version == 2
