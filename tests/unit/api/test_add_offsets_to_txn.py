"""AddOffsetsToTxn, from request to answer."""

from __future__ import annotations

import pytest

from ottla.api import add_offsets_to_txn
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tests.unit.api.transaction_services import Broker
from tests.unit.core.transactions.coordinator import ID

VERSIONS = pytest.mark.parametrize("version", range(5))


def ask(broker: Broker, version: int, epoch: int, transactional_id: str = ID) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=100, producer_epoch=epoch, group_id="abc"
    )
    return broker.ask(add_offsets_to_txn, request, version, AddOffsetsToTxnResponse).error_code


@VERSIONS
@pytest.mark.parametrize("later", [False, True])
def test_the_groups_partition_is_added(version: int, later: bool) -> None:
    broker = Broker(later=later)
    broker.coordinator.init()
    assert ask(broker, version, 0) == ErrorCode.NONE
    assert broker.coordinator.known.partitions == {TopicPartition("__consumer_offsets", 3)}


@VERSIONS
def test_who_is_refused(version: int) -> None:
    broker = Broker()
    assert ask(broker, version, 0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    broker.coordinator.init()
    assert ask(broker, version, 1) == (ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH)
    assert ask(broker, version, 0, transactional_id="") == ErrorCode.INVALID_REQUEST
    broker.coordinator.begin(0)
    broker.coordinator.end(0)
    assert ask(broker, version, 0) == ErrorCode.CONCURRENT_TRANSACTIONS
