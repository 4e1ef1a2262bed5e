"""TxnOffsetCommit, from request to answer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api import txn_offset_commit
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.unit.api.offset_services import OffsetServices

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit(services: OffsetServices, version: int = 5, partitions: Any = (0,), **more: Any) -> list[int]:
    request = TxnOffsetCommitRequest(
        **{"transactional_id": "x", "group_id": "g", "producer_id": 9, "producer_epoch": 2, **more},
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=5, committed_leader_epoch=4, committed_metadata="n"
                    )
                    for index in partitions
                ],
            )
        ],
    )
    answer = services.ask(txn_offset_commit, request, version, TxnOffsetCommitResponse)
    assert [topic.name for topic in answer.topics] == ["t"]
    assert [partition.partition_index for partition in answer.topics[0].partitions] == list(partitions)
    return [partition.error_code for partition in answer.topics[0].partitions]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("later", [False, True])
def test_offsets_wait_for_the_transaction(version: int, later: bool) -> None:
    services = OffsetServices()
    services.groups.later = services.transactions.later = later
    assert commit(services, version, (0, 3)) == [0, UNKNOWN]
    partition = TopicPartition("__consumer_offsets", 1)
    assert services.transactions.asked == [("x", 9, 2, [partition], version >= 5)]
    assert services.coordinator.fetch().offset == -1
    services.coordinator.end(9, committed=True)
    assert services.coordinator.fetch() == (0, 5, 4 if version >= 2 else -1, "n", ErrorCode.NONE)


def test_without_the_transaction_nothing_is_written() -> None:
    services = OffsetServices()
    services.transactions.refusal = ErrorCode.INVALID_TXN_STATE
    assert commit(services, 4, (0, 3)) == [ErrorCode.INVALID_TXN_STATE, UNKNOWN]
    assert sum(services.metrics.request_errors) == 1
    assert not services.coordinator.log


@pytest.mark.parametrize("later", [False, True])
def test_what_holds_for_the_partition_of_the_group_holds_for_all(later: bool) -> None:
    services = OffsetServices()
    services.transactions.later = later
    services.transactions.result = ErrorCode.TRANSACTION_ABORTABLE
    assert commit(services) == [ErrorCode.TRANSACTION_ABORTABLE]
    services.transactions.result = ErrorCode.NONE
    assert commit(services) == [ErrorCode.NONE]


def test_the_question_may_be_turned_off_for_those_who_add_the_partition_themselves() -> None:
    services = OffsetServices()
    services.services.config = BrokerConfig.from_properties({"transaction.partition.verification.enable": "false"})
    assert commit(services, 4) == [ErrorCode.NONE]
    assert not services.transactions.asked
    assert commit(services, 5) == [ErrorCode.NONE]
    assert services.transactions.asked


def test_without_anything_that_is_there_nobody_is_asked() -> None:
    services = OffsetServices()
    assert commit(services, 5, (3, -1)) == [UNKNOWN, UNKNOWN]
    assert not services.transactions.asked


def test_a_transaction_commits_for_a_group_with_a_name() -> None:
    assert commit(OffsetServices(), group_id="") == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize("version", [3, 5])
def test_a_producer_without_a_transactional_id_is_told_so_and_not_that_it_was_replaced(version: int) -> None:
    services = OffsetServices()
    assert commit(services, version, transactional_id="") == [ErrorCode.INVALID_REQUEST]
    assert not services.transactions.asked
    assert commit(services, version, transactional_id="", group_id="") == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_old_producers_do_not_know_that_coordinators_load(version: int, code: ErrorCode) -> None:
    services = OffsetServices()
    services.groups.refused["g"] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(services, version) == [code]


def test_a_coordinator_of_transactions_that_is_not_reached_is_tried_again() -> None:
    services = OffsetServices()
    services.transactions.refusal = ErrorCode.NETWORK_EXCEPTION
    assert commit(services) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


@pytest.mark.parametrize("version", range(6))
def test_a_producer_that_was_replaced_hears_what_every_client_takes_for_the_end(version: int) -> None:
    services = OffsetServices()
    services.transactions.refusal = ErrorCode.PRODUCER_FENCED
    assert commit(services, version) == [ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
def test_old_producers_do_not_know_that_a_transaction_can_be_aborted(version: int, code: ErrorCode) -> None:
    services = OffsetServices()
    services.transactions.refusal = ErrorCode.TRANSACTION_ABORTABLE
    assert commit(services, version) == [code]


def test_the_member_is_told() -> None:
    services = OffsetServices()
    assert commit(services, 3, member_id="m", generation_id=1) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_marker_that_comes_before_the_offsets_keeps_them_out() -> None:
    services = OffsetServices()
    services.transactions.later = services.groups.marker_came = True
    assert commit(services) == [ErrorCode.INVALID_TXN_STATE]
    assert services.groups.guarded == [("g", 9, 2)]
    services.coordinator.end(9, committed=True)
    assert services.coordinator.fetch().offset == -1
