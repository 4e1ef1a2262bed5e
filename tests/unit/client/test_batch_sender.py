"""What a user would lose: records, their order, or the knowledge that they did not arrive."""

from __future__ import annotations

import pytest

from ottla.client.batch_sender import BatchSender, Delivery
from ottla.client.cluster import Cluster
from ottla.client.deadline import Deadline
from ottla.client.errors import BrokerError, ClientError
from ottla.client.producer_identity import ProducerIdentity
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.batch import check, read_header
from ottla.wire.records import Record, build_batch
from tests.unit.client.scripted_broker import METADATA, PRODUCE, TOPIC, ScriptedBroker

FIRST = TopicPartition(TOPIC, 0)


def batch(value: bytes, count: int = 1) -> bytearray:
    return build_batch([Record(index, 1_000, None, value) for index in range(count)])


def values(stored: list[memoryview]) -> list[bytes]:
    """The last byte of each batch's records tells which one it is."""
    return [bytes(records[-2:-1]) for records in stored]


class Sending:
    """A sender to a scripted broker, and what it reported."""

    def __init__(self, broker: ScriptedBroker, *, idempotent: bool = False, **options: int) -> None:
        self.cluster = Cluster(broker.settings())
        self.reports: list[Delivery] = []
        identity = ProducerIdentity(self.cluster) if idempotent else None
        self.sender = BatchSender(self.cluster, self.reports.append, identity=identity, **options)

    def send(self, *texts: bytes, partition: TopicPartition = FIRST) -> list[ClientError | None]:
        for text in texts:
            self.sender.submit(partition, batch(text), 1)
        self.sender.flush(Deadline(5_000))
        self.cluster.close()
        return [report.error for report in self.reports]


def test_a_batch_arrives_and_its_offset_is_told() -> None:
    with ScriptedBroker() as broker:
        stored = broker.produces()
        sending = Sending(broker)
        assert sending.send(b"a", b"b") == [None, None]
        assert values(stored) == [b"a", b"b"]
        assert [report.base_offset for report in sending.reports] == [0, 1]
        assert sending.sender.idle


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_batch_is_sent_again_after_an_error_that_passes(code: ErrorCode) -> None:
    with ScriptedBroker() as broker:
        stored = broker.produces(code, code)
        assert Sending(broker).send(b"a") == [None]
        assert values(stored) == [b"a", b"a", b"a"]


def test_the_record_at_fault_is_named() -> None:
    with ScriptedBroker() as broker:
        broker.produces(ErrorCode.INVALID_RECORD, record_errors=[(2, None), (4, "no key"), (5, "no key either")])
        sending = Sending(broker)
        sending.sender.submit(FIRST, batch(b"a", 6), 6)
        (error,) = sending.send()
        assert isinstance(error, BrokerError)
        assert error.code is ErrorCode.INVALID_RECORD
        assert "record 4 of the batch's 6: no key (" in str(error)


def test_a_new_leader_is_asked_for_after_the_old_one_refused() -> None:
    with ScriptedBroker() as broker:
        broker.produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        Sending(broker).send(b"a")
        first, last = broker.served.index(PRODUCE), len(broker.served) - 1 - broker.served[::-1].index(PRODUCE)
        assert METADATA in broker.served[first:last]


def test_order_is_kept_when_an_earlier_batch_must_be_repeated() -> None:
    with ScriptedBroker() as broker:
        stored = broker.produces(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert Sending(broker).send(b"a", b"b", b"c") == [None] * 3
        assert values(stored) == [b"a", b"a", b"b", b"c"]


def test_a_connection_that_breaks_loses_no_batch() -> None:
    with ScriptedBroker() as broker:
        stored = broker.produces(None, None)
        assert Sending(broker).send(b"a", b"b") == [None, None]
        assert values(stored)[-2:] == [b"a", b"b"]


def test_a_refusal_for_good_is_reported_with_the_topic_and_not_repeated() -> None:
    with ScriptedBroker() as broker:
        stored = broker.produces(ErrorCode.MESSAGE_TOO_LARGE)
        refused, accepted = Sending(broker).send(b"a", b"b")
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
        assert str(FIRST) in str(refused)
        assert accepted is None
        assert values(stored) == [b"a", b"b"]


def test_a_batch_is_given_up_when_its_time_is_over() -> None:
    with ScriptedBroker() as broker:
        broker.produces(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
        (error,) = Sending(broker, delivery_timeout_ms=150).send(b"a")
        assert isinstance(error, BrokerError)
        assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_broker_in_trouble_is_not_hammered() -> None:
    with ScriptedBroker() as broker:
        broker.produces(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
        Sending(broker, delivery_timeout_ms=200).send(b"a")
        assert 2 <= broker.served.count(PRODUCE) <= 30


def test_partitions_do_not_wait_for_each_other() -> None:
    with ScriptedBroker(partitions=2) as broker:
        stored = broker.produces()
        sending = Sending(broker)
        sending.sender.submit(TopicPartition(TOPIC, 1), batch(b"y"), 1)
        assert sending.send(b"x") == [None, None]
        assert sorted(values(stored)) == [b"x", b"y"]
        assert broker.served.count(PRODUCE) == 1


def test_without_acks_nobody_waits() -> None:
    with ScriptedBroker() as broker:
        broker.produces()
        sending = Sending(broker, acks=0)
        assert sending.send(b"a") == [None]
        assert sending.reports[0].base_offset == -1


def test_an_idempotent_batch_is_valid_and_repeated_with_its_own_numbers() -> None:
    with ScriptedBroker() as broker:
        stored = broker.produces(None)
        assert Sending(broker, idempotent=True).send(b"a", b"b") == [None, None]
        headers = [check(records) for records in stored]
        assert [(header.producer_id, header.base_sequence) for header in headers] == [(1, 0), (1, 0), (1, 1)]


def test_a_batch_that_the_broker_had_already_counts_as_delivered() -> None:
    with ScriptedBroker() as broker:
        broker.produces(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert Sending(broker, idempotent=True).send(b"a") == [None]


def test_after_a_lost_batch_the_numbers_start_anew_under_another_id() -> None:
    with ScriptedBroker() as broker:
        stored = broker.produces(ErrorCode.NONE, ErrorCode.INVALID_RECORD)
        errors = Sending(broker, idempotent=True).send(b"a", b"b", b"c")
        assert [error is None for error in errors] == [True, False, True]
        headers = [read_header(records) for records in stored]
        assert [(header.producer_id, header.base_sequence) for header in headers] == [(1, 0), (1, 1), (2, 0)]
