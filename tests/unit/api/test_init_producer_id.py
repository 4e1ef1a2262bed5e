"""InitProducerId, from request to answer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api import init_producer_id
from ottla.model.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.api.transaction_services import Broker
from tests.unit.core.transactions.coordinator import ID, TIMEOUT_MS

VERSIONS = pytest.mark.parametrize("version", range(6))


def ask(broker: Broker, version: int, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**{"transactional_id": ID, "transaction_timeout_ms": TIMEOUT_MS, **fields})
    return broker.ask(init_producer_id, request, version, InitProducerIdResponse)


@VERSIONS
@pytest.mark.parametrize("later", [False, True])
def test_a_transactional_producer_gets_an_id_and_then_epochs(version: int, later: bool) -> None:
    broker = Broker(later=later)
    answers = [ask(broker, version) for _ in range(2)]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 2
    assert answers[0].producer_id == answers[1].producer_id >= 100
    assert [answer.producer_epoch for answer in answers] == [0, 1]


@VERSIONS
def test_an_idempotent_producer_gets_an_id(version: int) -> None:
    answer = ask(Broker(), version, transactional_id=None)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 7, 0)


@VERSIONS
def test_an_empty_id_is_refused(version: int) -> None:
    assert ask(Broker(), version, transactional_id="").error_code == ErrorCode.INVALID_REQUEST


@VERSIONS
def test_a_timeout_over_the_limit_is_refused(version: int) -> None:
    answer = ask(Broker(), version, transaction_timeout_ms=900_001)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_half_an_identity_is_refused(fields: dict[str, int]) -> None:
    assert ask(Broker(), 5, **fields).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
def test_a_fenced_producer_hears_what_its_version_knows(version: int, code: int) -> None:
    broker = Broker()
    for _ in range(2):
        producer_id = ask(broker, version).producer_id
    assert ask(broker, version, producer_id=producer_id, producer_epoch=0).error_code == code
    assert ask(broker, version, producer_id=producer_id, producer_epoch=1).producer_epoch == 2


@pytest.mark.parametrize("later", [False, True])
def test_a_transaction_that_goes_on_has_to_be_waited_for(later: bool) -> None:
    broker = Broker(later=later)
    ask(broker, 5)
    broker.coordinator.begin(2)
    assert ask(broker, 5).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    broker.coordinator.write_markers()
    assert ask(broker, 5).producer_epoch == 2


def test_another_broker_is_the_coordinator() -> None:
    broker = Broker()
    broker.transactions.refused[ID] = ErrorCode.NOT_COORDINATOR
    assert ask(broker, 5).error_code == ErrorCode.NOT_COORDINATOR
