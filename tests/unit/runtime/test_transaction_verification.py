"""A batch begins a transaction on a partition only with its coordinator's word, and only while that word holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection

import pytest

from ottla.log.partition_log import Appended
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.transaction_verification import Answer, TransactionalProduce, produce_error
from tests.unit.log.support import ProducerFields, batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run, transactional

ID = "payments"


class Coordinator:
    """Says what it is told to say, at once or when a test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, list[int], bool]] = []
        self.says: list[ErrorCode] = []
        """In turn; NONE when there is nothing left."""
        self.gate: asyncio.Event | None = None

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> Answer | Awaitable[Answer]:
        assert transactional_id == ID
        self.asked.append((producer_id, producer_epoch, sorted(tp.partition for tp in partitions), add))
        code = self.says.pop(0) if self.says else ErrorCode.NONE
        if self.gate is not None:
            return self._later(self.gate, code)
        return self._answer(code)

    async def _later(self, gate: asyncio.Event, code: ErrorCode) -> Answer:
        await gate.wait()
        return self._answer(code)

    @staticmethod
    def _answer(code: ErrorCode) -> Answer:
        if code is not ErrorCode.NONE:
            raise ApiError(code)
        return None


class Producing:
    """Produce requests of one transactional producer."""

    def __init__(self, config: TopicConfig | None = None, properties: dict[str, str] | None = None) -> None:
        self.hosted = Hosted({TOPIC: config or TopicConfig()}, properties)
        self.coordinator = Coordinator()

    def request(self, batches: dict[int, bytearray], version: int = 12) -> TransactionalProduce:
        hosted = self.hosted
        return TransactionalProduce(
            ID,
            version,
            [(TOPIC, [(index, memoryview(batch)) for index, batch in batches.items()])],
            appender=hosted.appender,
            table=hosted.table,
            verifier=self.coordinator,
            clock=hosted.clock,
            config=hosted.config,
        )

    def send(
        self, batches: dict[int, bytearray], version: int = 12
    ) -> list[Appended | Awaitable[Appended] | ErrorCode]:
        """What became of each batch of one request."""
        produce = self.request(batches, version)
        outcomes: list[Appended | Awaitable[Appended] | ErrorCode] = []
        for index, batch in batches.items():
            topic = self.hosted.table.topic(TOPIC)
            partition = self.hosted.partition(index)
            try:
                outcomes.append(produce.append(topic, partition, memoryview(batch), self.hosted.clock.ms))
            except ApiError as error:
                outcomes.append(error.code)
        return outcomes

    def send_one(self, batch: bytearray, version: int = 12) -> Appended | Awaitable[Appended] | ErrorCode:
        (outcome,) = self.send({0: batch}, version)
        return outcome


def offset_of(outcome: object) -> int:
    assert isinstance(outcome, Appended)
    return outcome.base_offset


async def settled(outcome: object) -> int | ErrorCode:
    if isinstance(outcome, ErrorCode):
        return outcome
    assert isinstance(outcome, Awaitable)
    try:
        return offset_of(await outcome)
    except ApiError as error:
        return error.code


def test_the_first_batch_asks_and_the_others_do_not() -> None:
    producing = Producing()
    assert offset_of(producing.send_one(transactional(7, 0))) == 0
    assert offset_of(producing.send_one(transactional(7, 1))) == 1
    assert producing.coordinator.asked == [(7, 0, [0], True)]
    producing.hosted.end(7, committed=True, epoch=1)
    assert offset_of(producing.send_one(transactional(7, 0, epoch=1))) == 3
    assert len(producing.coordinator.asked) == 2


def test_all_partitions_of_a_request_are_asked_about_at_once() -> None:
    producing = Producing()
    producing.send_one(transactional(7, 0))
    outcomes = producing.send({index: transactional(7, 1 if index == 0 else 0) for index in range(3)})
    assert [offset_of(outcome) for outcome in outcomes] == [1, 0, 0]
    assert producing.coordinator.asked[1:] == [(7, 0, [1, 2], True)]


def test_older_clients_are_verified_and_newer_ones_added() -> None:
    producing = Producing()
    producing.send_one(transactional(7, 0), version=11)
    assert producing.coordinator.asked == [(7, 0, [0], False)]


def test_verification_of_older_clients_can_be_turned_off() -> None:
    producing = Producing(properties={"transaction.partition.verification.enable": "false"})
    assert offset_of(producing.send_one(transactional(7, 0), version=11)) == 0
    assert producing.coordinator.asked == []
    producing.send_one(transactional(8, 0), version=12)
    assert len(producing.coordinator.asked) == 1


def test_batches_outside_of_transactions_ask_nobody() -> None:
    producing = Producing()
    assert offset_of(producing.send_one(batch_of(1, producer=ProducerFields(7, 0, 0)))) == 0
    assert producing.coordinator.asked == []


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    hosted = Hosted()
    topic, batch = hosted.table.topic(TOPIC), memoryview(transactional(7, 0))
    with pytest.raises(ApiError) as refused:
        hosted.appender.append(topic, hosted.partition(), batch, hosted.clock.ms)
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_request_is_of_one_producer() -> None:
    producing = Producing()
    outcomes = producing.send({0: transactional(7, 0), 1: transactional(8, 0)})
    assert outcomes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert producing.coordinator.asked == []


@pytest.mark.parametrize(
    ("says", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_refusal_is_told_in_the_words_of_the_version(says: ErrorCode, version: int, told: ErrorCode) -> None:
    assert produce_error(ApiError(says), version).code is told


def test_a_refused_batch_is_not_written() -> None:
    producing = Producing()
    producing.coordinator.says = [ErrorCode.INVALID_TXN_STATE]
    assert producing.send_one(transactional(7, 0)) is ErrorCode.INVALID_TXN_STATE
    assert producing.hosted.partition().log.log_end_offset == 0
    assert offset_of(producing.send_one(transactional(7, 0))) == 0


def test_a_transaction_that_is_just_being_ended_is_waited_for() -> None:
    producing = Producing(properties={"add.partitions.to.txn.retry.backoff.ms": "1"})

    async def scenario() -> None:
        producing.coordinator.says = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        assert await settled(producing.send_one(transactional(7, 0))) == 0
        assert len(producing.coordinator.asked) == 3

    run(scenario)


def test_the_wait_for_a_transaction_that_is_being_ended_has_an_end() -> None:
    producing = Producing(properties={"add.partitions.to.txn.retry.backoff.max.ms": "0"})

    async def scenario() -> None:
        producing.coordinator.says = [ErrorCode.CONCURRENT_TRANSACTIONS] * 9
        assert await settled(producing.send_one(transactional(7, 0))) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(producing.coordinator.asked) == 1

    run(scenario)


def test_batches_that_wait_for_the_answer_are_written_in_their_order() -> None:
    producing = Producing()

    async def scenario() -> None:
        producing.coordinator.gate = gate = asyncio.Event()
        first = producing.send_one(transactional(7, 0))
        second = producing.send_one(transactional(7, 1))
        plain = producing.send_one(batch_of(1))
        assert producing.hosted.partition().log.log_end_offset == 0
        gate.set()
        assert [await settled(outcome) for outcome in (first, second, plain)] == [0, 1, 2]

    run(scenario)


def test_a_marker_before_the_write_takes_the_permission_away() -> None:
    producing = Producing()

    async def scenario() -> None:
        producing.coordinator.gate = gate = asyncio.Event()
        held_up = producing.send_one(transactional(7, 0))
        producing.hosted.end(7, committed=False)
        gate.set()
        assert await settled(held_up) is ErrorCode.INVALID_TXN_STATE
        assert producing.hosted.partition().log.producers.first_unstable_offset is None

    run(scenario)


def test_a_later_transaction_does_not_give_the_permission_back() -> None:
    producing = Producing()

    async def scenario() -> None:
        producing.coordinator.gate = gate = asyncio.Event()
        held_up = producing.send_one(transactional(7, 0))
        producing.hosted.end(7, committed=False)
        again = producing.send_one(transactional(7, 0))
        gate.set()
        assert await settled(held_up) is ErrorCode.INVALID_TXN_STATE
        assert await settled(again) == 1

    run(scenario)


def test_a_marker_ends_what_waits_for_the_record_worker() -> None:
    """The transaction was open when the batch came, and is over when its records have been looked at."""
    producing = Producing(TopicConfig(record_validation_full=True))

    async def scenario() -> None:
        assert await settled(producing.send_one(transactional(7, 0))) == 0
        held_up = producing.send_one(transactional(7, 1))
        producing.hosted.end(7, committed=True)
        assert await settled(held_up) is ErrorCode.INVALID_TXN_STATE

    run(scenario)


def test_a_later_batch_does_not_pass_one_that_must_be_sent_again() -> None:
    producing = Producing()
    producing.coordinator.says = [ErrorCode.NOT_COORDINATOR]
    assert producing.send_one(transactional(7, 0), version=11) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert producing.send_one(transactional(7, 1), version=11) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert offset_of(producing.send_one(transactional(7, 0), version=11)) == 0
    assert offset_of(producing.send_one(transactional(7, 1), version=11)) == 1


def test_a_transaction_of_a_new_client_counts_from_zero() -> None:
    producing = Producing()
    assert producing.send_one(transactional(7, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert offset_of(producing.send_one(transactional(8, 5), version=11)) == 0


def test_a_producer_that_was_followed_is_not_asked_about() -> None:
    producing = Producing()
    producing.hosted.end(7, committed=False, epoch=3)
    assert producing.send_one(transactional(7, 0, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producing.coordinator.asked == []


def test_a_new_incarnation_asks_anew_while_the_old_transaction_is_open() -> None:
    producing = Producing()
    producing.send_one(transactional(7, 0))
    producing.coordinator.says = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert producing.send_one(transactional(7, 0, epoch=1), version=11) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(producing.coordinator.asked) == 2


def test_nothing_holds_the_request_after_it_was_handled() -> None:
    producing = Producing()

    async def scenario() -> None:
        producing.coordinator.gate = gate = asyncio.Event()
        batch = transactional(7, 0)
        frame = bytearray(batch)
        outcome = producing.send_one(frame)
        frame.extend(b"the next frame")  # BufferError while somebody has a view of it.
        gate.set()
        assert await settled(outcome) == 0

    run(scenario)
