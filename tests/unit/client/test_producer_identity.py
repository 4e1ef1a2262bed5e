"""Sequence numbers are what keeps a repeated batch from being stored twice."""

from __future__ import annotations

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError
from ottla.client.producer_identity import ProducerIdentity
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.batch import check
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.records import Record, build_batch
from ottla.wire.schema import encode
from tests.unit.client.scripted_broker import INIT_PRODUCER_ID, ScriptedBroker

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch_of(count: int) -> bytearray:
    return build_batch([Record(index, 0, None, b"value") for index in range(count)])


def stamped(identity: ProducerIdentity, partition: TopicPartition, count: int) -> tuple[int, int]:
    records = batch_of(count)
    identity.stamp(partition, records, count)
    header = check(memoryview(records))
    return header.producer_id, header.base_sequence


def test_numbers_rise_by_the_records_of_each_partition() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        identity = ProducerIdentity(cluster)
        assert stamped(identity, FIRST, 3) == (1, 0)
        assert stamped(identity, FIRST, 2) == (1, 3)
        assert stamped(identity, SECOND, 1) == (1, 0)
        assert broker.producer_ids == 1


def test_numbers_wrap_where_kafkas_do() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        identity = ProducerIdentity(cluster)
        identity._next_sequence[FIRST] = 2**31 - 2
        stamped(identity, FIRST, 3)
        assert stamped(identity, FIRST, 1)[1] == 1


def test_a_new_id_starts_at_zero_everywhere() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        identity = ProducerIdentity(cluster)
        stamped(identity, FIRST, 3)
        identity.forget()
        assert stamped(identity, FIRST, 3) == (2, 0)


def test_a_refused_id_is_an_error() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        refusal = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.answers[INIT_PRODUCER_ID] = lambda version, frame, position: encode(refusal, version)
        with pytest.raises(BrokerError, match="producer id"):
            ProducerIdentity(cluster).stamp(FIRST, batch_of(1), 1)
