"""Transactions on real logs: markers where they belong, producer ids, and what a restart finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.transactions.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    PendingMarkers,
    ProducerInitialized,
)
from ottla.core.transactions.records import TransactionState
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.runtime.coordinator_kinds import transaction_kind
from ottla.runtime.marker_writing import MarkerWriter
from ottla.runtime.producer_ids import ProducerIds
from ottla.runtime.transaction_coordinators import TransactionCoordinators
from tests.unit.runtime.counting import NODE_ID, CountingBroker

DATA = TopicPartition("data", 0)
ELSEWHERE = TopicPartition("elsewhere", 0)
FLUSHED = TopicConfig(flush_messages=1)


class FewIds:
    """Producer ids; every other one must be waited for."""

    def __init__(self) -> None:
        self.given = 0

    def next_or_none(self) -> int | None:
        if self.given % 2:
            return None
        self.given += 1
        return self.given

    async def next(self) -> int:
        await asyncio.sleep(0)
        self.given += 1
        return self.given


class Sender:
    """Sends markers as the broker does, unless a test has said what becomes of them."""

    def __init__(self, writer: MarkerWriter) -> None:
        self.writer = writer
        self.sent: list[PendingMarkers] = []
        self.script: list[ErrorCode | Exception | None] = []
        self.later = False

    def send(self, markers: PendingMarkers, coordinator_epoch: int) -> Any:
        self.sent.append(markers)
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        results: Any = self.writer.send(markers, coordinator_epoch)
        if step is not None:
            results = dict.fromkeys(markers.partitions, step)
        return self._later(results) if self.later else results

    async def _later(self, results: Mapping[TopicPartition, ErrorCode]) -> Mapping[TopicPartition, ErrorCode]:
        await asyncio.sleep(0)
        return results


class TransactionBroker(CountingBroker):
    """A broker with one topic of data."""

    def __init__(self, path: Path, data_config: TopicConfig | None = None) -> None:
        super().__init__(path)
        self.data_config = data_config or TopicConfig()
        self.ids = FewIds()
        self.transaction_version = 2
        self.sender = Sender(MarkerWriter(self.table, self.clock, self.flushes, lambda: self.coordinators))
        self.transactions = TransactionCoordinators(
            transaction_kind(lambda: self.config, lambda: self.transaction_version),
            self.world,
            self.table,
            self.flushes,
            lambda: self.config,
            has_files=self._has_files,
            sender=self.sender,
            partition_exists=lambda tp: self.image.has_partition(tp),
            producer_ids=lambda: cast(ProducerIds, self.ids),
        )
        state = PartitionImage(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID)
        topics = [
            TopicImage(TRANSACTION_STATE_TOPIC, UUID(int=1001), (state,)),
            TopicImage("data", UUID(int=1002), (state,)),
        ]
        self.image = MetadataImage(topics={topic.name: topic for topic in topics})

    async def begin(self) -> TransactionCoordinators:
        for topic in self.image.topics.values():
            self.table.host(topic, self.data_config if topic.name == "data" else self.topic_config)
        self.transactions.coordinators.follow(self.image, NODE_ID)
        await self.transactions.coordinators.loaded()
        return self.transactions

    async def producer(self) -> ProducerInitialized:
        answer = self.transactions.submit_with_spare(
            "tx", lambda spare: InitProducerId("tx", 60_000, spare_producer_id=spare)
        )
        return await answer if isinstance(answer, Awaitable) else answer

    def add(self, who: ProducerInitialized, *partitions: TopicPartition) -> None:
        command = AddPartitions("tx", who.producer_id, who.producer_epoch, frozenset(partitions))
        assert self.transactions.submit("tx", command) is None

    def end(self, who: ProducerInitialized) -> Any:
        return self.transactions.submit("tx", EndTxn("tx", who.producer_id, who.producer_epoch, committed=True))

    @property
    def state(self) -> TransactionState:
        answer = self.transactions.submit("tx", DescribeTransaction("tx"))
        assert not isinstance(answer, Awaitable)
        return answer.state

    @property
    def data_end(self) -> int:
        return self.table.leader("data", 0).log.log_end_offset

    async def until(self, state: TransactionState) -> None:
        for _ in range(500):
            if self.state is state:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"{self.state} never became {state}")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 10)

    asyncio.run(bounded())


def test_a_transaction_of_this_broker_is_complete_when_its_end_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA)
        assert broker.end(who).producer_id == who.producer_id
        assert broker.state is TransactionState.COMPLETE_COMMIT
        assert broker.data_end == 1

    run(scenario)


def test_markers_that_cannot_be_written_now_are_written_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA)
        broker.sender.script = [ErrorCode.NOT_ENOUGH_REPLICAS, ValueError("a fault"), ErrorCode.KAFKA_STORAGE_ERROR]
        broker.end(who)
        assert broker.state is TransactionState.PREPARE_COMMIT
        await broker.until(TransactionState.COMPLETE_COMMIT)
        assert len(broker.sender.sent) == 4

    run(scenario)


@pytest.mark.parametrize("later", [False, True])
def test_topics_that_are_gone_need_no_marker(tmp_path: Path, later: bool) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        broker.sender.later = later
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA, ELSEWHERE)
        broker.end(who)
        await broker.until(TransactionState.COMPLETE_COMMIT)
        assert len(broker.sender.sent) == 1
        await broker.transactions.close()

    run(scenario)


def test_a_topic_that_was_made_anew_with_fewer_partitions_does_not_hold_up_its_producer_for_ever(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA, TopicPartition("data", 1))
        broker.end(who)
        assert broker.state is TransactionState.COMPLETE_COMMIT
        assert len(broker.sender.sent) == 1

    run(scenario)


def test_a_superseded_marker_is_not_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA)
        broker.sender.script = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        broker.end(who)
        await asyncio.sleep(0.06)
        assert len(broker.sender.sent) == 1
        assert broker.state is TransactionState.PREPARE_COMMIT

    run(scenario)


def test_a_partition_that_has_seen_a_later_epoch_holds_up_no_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA)
        broker.sender.script = [ErrorCode.INVALID_PRODUCER_EPOCH]
        broker.end(who)
        await broker.until(TransactionState.COMPLETE_COMMIT)
        assert len(broker.sender.sent) == 1

    run(scenario)


def test_a_marker_counts_when_it_is_flushed(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path, FLUSHED)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA)
        broker.end(who)
        assert broker.state is TransactionState.PREPARE_COMMIT
        await broker.until(TransactionState.COMPLETE_COMMIT)
        assert broker.table.leader("data", 0).log.recovery_point == 1

    run(scenario)


def test_after_a_restart_markers_are_written_again(tmp_path: Path) -> None:
    async def before() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA)
        broker.sender.script = [ErrorCode.REQUEST_TIMED_OUT] * 9
        broker.end(who)
        assert broker.state is TransactionState.PREPARE_COMMIT
        broker.transactions.coordinators.resign(0)

    async def after() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        assert broker.state is TransactionState.COMPLETE_COMMIT
        assert len(broker.sender.sent) == 1

    run(before)
    run(after)


def test_who_resigned_sends_no_more_markers(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        who = await broker.producer()
        broker.add(who, DATA)
        broker.sender.script = [ErrorCode.REQUEST_TIMED_OUT]
        broker.end(who)
        broker.transactions.coordinators.resign(0)
        await asyncio.sleep(0.05)
        assert len(broker.sender.sent) == 1

    run(scenario)


def test_an_id_that_was_not_needed_is_used_next_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        await broker.begin()
        first = await broker.producer()
        again = await broker.producer()
        once_more = await broker.producer()
        assert (again.producer_id, once_more.producer_id) == (first.producer_id, first.producer_id)
        assert (again.producer_epoch, once_more.producer_epoch) == (1, 2)
        assert broker.ids.given == 2

    run(scenario)


def test_verification_says_what_is_part_of_the_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        transactions = await broker.begin()
        who = await broker.producer()

        def verify(*partitions: TopicPartition, add: bool = False) -> Any:
            return transactions.verify("tx", who.producer_id, who.producer_epoch, partitions, add=add)

        with pytest.raises(ApiError):
            verify(DATA)
        assert verify(DATA, add=True) is None
        assert verify(DATA) is None
        assert verify(DATA, ELSEWHERE)[ELSEWHERE] is ErrorCode.TRANSACTION_ABORTABLE
        with pytest.raises(ApiError) as refused:
            verify(ELSEWHERE)
        assert refused.value.code is ErrorCode.TRANSACTION_ABORTABLE

    run(scenario)


class Elsewhere:
    """The coordinators of another broker: what they say of each partition, or None for what is coordinated here."""

    def __init__(self, says: dict[TopicPartition, ErrorCode] | ApiError | None) -> None:
        self.says = says
        self.asked: list[tuple[Any, ...]] = []

    def verify(self, *question: Any, add: bool) -> Any:
        self.asked.append((*question, add))
        return None if self.says is None else self._say()

    async def _say(self) -> dict[TopicPartition, ErrorCode]:
        assert self.says is not None
        if isinstance(self.says, ApiError):
            raise self.says
        return self.says


def test_a_coordinator_elsewhere_is_asked_and_believed(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        transactions = await broker.begin()
        a, b = TopicPartition("data", 0), TopicPartition("data", 1)
        abortable = ErrorCode.TRANSACTION_ABORTABLE

        async def asked(says: dict[TopicPartition, ErrorCode] | ApiError) -> Any:
            elsewhere = Elsewhere(says)
            transactions._remote = cast(Any, elsewhere)
            answer = transactions.verify("tx", 7, 3, [a, b], add=True)
            assert isinstance(answer, Awaitable)
            assert elsewhere.asked == [(0, "tx", 7, 3, [a, b], True)]
            return await answer

        assert await asked({a: ErrorCode.NONE, b: ErrorCode.NONE}) is None
        assert await asked({a: ErrorCode.NONE, b: abortable}) == {a: ErrorCode.NONE, b: abortable}
        concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
        with pytest.raises(ApiError) as refused:
            await asked({a: concurrent, b: concurrent})
        assert refused.value.code is concurrent
        with pytest.raises(ApiError) as refused:
            await asked(ApiError(ErrorCode.NETWORK_EXCEPTION))
        assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
        transactions._remote = cast(Any, Elsewhere(None))
        with pytest.raises(ApiError) as refused:
            transactions.verify("tx", 7, 3, [a], add=False)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    run(scenario)


def test_before_there_are_transactions_nobody_is_sent_to_look_for_another_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = TransactionBroker(tmp_path)
        with pytest.raises(ApiError) as refused:
            broker.transactions.verify("tx", 7, 3, [DATA], add=False)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario)
