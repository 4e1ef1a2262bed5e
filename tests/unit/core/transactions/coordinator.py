"""A transaction coordinator that is driven by hand: what it decides is appended, replayed and answered at once."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from ottla.core.coordination import Command, Outcome
from ottla.core.transactions.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    PendingMarkers,
    ProducerInitialized,
    TransactionEnded,
)
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.shard import TransactionShard
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition

AnswerT = TypeVar("AnswerT")

ID = "shop"
TIMEOUT_MS = 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Coordinator:
    """One shard with its log. Markers that are due pile up in `markers`."""

    def __init__(self, **properties: str) -> None:
        keys = {name.replace("_", "."): value for name, value in properties.items()}
        self.config = BrokerConfig.from_properties({"node.id": "1", **keys})
        self.log: list[TransactionRecord] = []
        self.now_ms = 1_000_000
        self.next_producer_id = 100
        self.is_writable = True
        self.transaction_version = 2
        self.markers: list[PendingMarkers] = []
        self.shard = self.load()
        self._ticket = 0

    def load(self, log: list[TransactionRecord] | None = None) -> TransactionShard:
        """A shard made of the log, or of one that was compacted."""
        shard = TransactionShard(lambda: self.config, lambda: self.transaction_version)
        for record in self.log if log is None else log:
            shard.replay(record, -1)
        assert not shard.loaded(self.now_ms).records
        return shard

    def fail_over(self) -> None:
        """Another broker coordinates: nothing is left but the log, of which only the last record of an id is sure."""
        last = {record.transactional_id: record for record in self.log}
        self.shard = self.load([record for record in self.log if last[record.transactional_id] is record])
        self.markers = self.shard.markers_due()

    def submit(self, command: Command[AnswerT]) -> AnswerT:
        self._ticket += 1
        outcome = self._perform(self.shard.decide(command, self._ticket, self.now_ms))
        assert [ticket for ticket, _ in outcome.answers] == [self._ticket]
        answer: Any = outcome.answers[0][1]
        if isinstance(answer, ApiError):
            raise answer
        return answer  # type: ignore[no-any-return]

    def refused(self, command: Command[Any]) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.submit(command)
        return refused.value.code

    def pass_time(self, ms: int) -> None:
        """What is due meanwhile happens when it is due."""
        until_ms = self.now_ms + ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._perform(self.shard.tick(self.now_ms))
        self.now_ms = until_ms

    def _perform(self, outcome: Outcome[TransactionRecord]) -> Outcome[TransactionRecord]:
        if outcome.records and not self.is_writable:
            code = ErrorCode.NOT_ENOUGH_REPLICAS
            if outcome.not_written is None:
                return Outcome(answers=[(ticket, ApiError(code)) for ticket, _ in outcome.answers])
            outcome = outcome.not_written(code, self.now_ms)
        for record in outcome.records:
            self.log.append(record)
            self.shard.replay(record, -1)
        self.markers += self.shard.markers_due()
        return outcome

    # -- what producers do

    def init(
        self, producer_id: int = -1, producer_epoch: int = -1, *, timeout_ms: int = TIMEOUT_MS
    ) -> ProducerInitialized:
        answer = self.submit(self.init_command(producer_id, producer_epoch, timeout_ms=timeout_ms))
        self.next_producer_id += answer.spare_used
        return answer

    def init_command(
        self, producer_id: int = -1, producer_epoch: int = -1, *, timeout_ms: int = TIMEOUT_MS
    ) -> InitProducerId:
        return InitProducerId(ID, timeout_ms, producer_id, producer_epoch, self.next_producer_id)

    def begin(self, version: int, *partitions: TopicPartition) -> None:
        """The producer of now adds partitions."""
        self.submit(self.add_command(*self.identity, version, *(partitions or (A0, B0))))

    def add_command(
        self, producer_id: int, producer_epoch: int, version: int, *partitions: TopicPartition
    ) -> AddPartitions:
        return AddPartitions(ID, producer_id, producer_epoch, frozenset(partitions), version)

    def end(self, version: int, *, committed: bool = True) -> TransactionEnded:
        """The producer of now ends its transaction."""
        answer = self.submit(self.end_command(*self.identity, version, committed=committed))
        self.next_producer_id += answer.spare_used
        return answer

    def end_command(self, producer_id: int, producer_epoch: int, version: int, *, committed: bool = True) -> EndTxn:
        return EndTxn(ID, producer_id, producer_epoch, committed, version, self.next_producer_id)

    def write_markers(self) -> None:
        """Every marker that is due is written."""
        pending, self.markers = self.markers, []
        for markers in pending:
            self.submit(markers.written(markers.partitions))

    def put(self, **fields: Any) -> None:
        """Let the id stand as a record says that nobody would get to in a test's time."""
        record = TransactionRecord(**{"transactional_id": ID, "timeout_ms": TIMEOUT_MS, **fields})
        self.log.append(record)
        self.shard.replay(record, -1)

    @property
    def known(self) -> TransactionRecord:
        return self.submit(DescribeTransaction(ID))

    def state(self) -> TransactionState:
        return self.known.state

    @property
    def identity(self) -> tuple[int, int]:
        return self.known.producer_id, self.known.producer_epoch
