"""EndTxn, from request to answer."""

from __future__ import annotations

import pytest

from ottla.api import end_txn
from ottla.model.errors import ErrorCode
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tests.unit.api.transaction_services import Broker
from tests.unit.core.transactions.coordinator import ID

VERSIONS = pytest.mark.parametrize("version", range(6))


def ask(broker: Broker, version: int, producer_id: int, epoch: int, transactional_id: str = ID) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    return broker.ask(end_txn, request, version, EndTxnResponse)


@VERSIONS
@pytest.mark.parametrize("later", [False, True])
def test_the_epoch_rises_from_version_5_on(version: int, later: bool) -> None:
    broker = Broker(later=later)
    broker.coordinator.init()
    broker.coordinator.begin(2 if version == 5 else 0)
    answer = ask(broker, version, 100, 0)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.producer_id, answer.producer_epoch) == ((100, 1) if version == 5 else (-1, -1))
    assert broker.coordinator.identity == (100, 1 if version == 5 else 0)
    assert ask(broker, version, 100, 0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    broker.coordinator.write_markers()
    assert ask(broker, version, 100, 0) == answer


@VERSIONS
def test_who_is_refused(version: int) -> None:
    broker = Broker()
    broker.coordinator.init()
    assert ask(broker, version, 100, 0).error_code == ErrorCode.INVALID_TXN_STATE
    assert ask(broker, version, 99, 0).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert ask(broker, version, 100, 5).error_code == fenced
    assert ask(broker, version, 100, 0, transactional_id="").error_code == ErrorCode.INVALID_REQUEST
    broker.transactions.refused[ID] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(broker, version, 100, 0).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("later", [False, True])
def test_with_the_last_epoch_comes_a_new_producer_id(later: bool) -> None:
    broker = Broker(later=later)
    broker.coordinator.put(producer_id=5, producer_epoch=32_766)
    broker.coordinator.begin(2)
    answer = ask(broker, 5, 5, 32_766)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    assert answer.producer_id > 100
