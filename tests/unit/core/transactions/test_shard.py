"""Any order of producers, zombies, repetitions, timeouts, failovers and late markers leaves transactions whole.

The model has what a coordinator alone cannot show: producers that wait for their answers and send again, and partitions
that take records and markers by the rules of a log. Each transaction has a number, by which it is known to the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.coordination import Command
from ottla.core.transactions.commands import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    PendingMarkers,
    VerifyPartitions,
)
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.transaction import COMPLETE, EPOCH_MAX, PREPARED
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from tests.unit.core.transactions.coordinator import A0, A1, B0, ID, Coordinator

PARTITIONS = (A0, A1, B0)
PRODUCERS_MAX = 12
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
COMMITS = {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}


@dataclass
class Producer:
    """One instance of a client with the transactional id. It does one thing at a time."""

    version: int
    identity: tuple[int, int] = (-1, -1)
    transaction: int = 0
    """What it has begun and not ended; 0 for nothing."""
    asks: InitProducerId | EndTxn | None = None
    """What it has sent and not heard of."""
    is_dead: bool = False


@dataclass
class Log:
    """One partition: what it knows of each producer id."""

    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    decisions: dict[int, bool] = field(default_factory=dict)

    def write(self, producer_id: int, epoch: int, transaction: int) -> bool:
        if epoch < self.epochs.get(producer_id, -1):
            return False
        self.epochs[producer_id] = epoch
        assert self.open.setdefault(producer_id, transaction) == transaction, "two transactions in one"
        assert transaction not in self.decisions, "written to after it ended"
        return True

    def mark(self, markers: PendingMarkers, transaction: int) -> None:
        """A marker that is not refused must be that of the transaction that it ends."""
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        known = self.epochs.get(producer_id, -1)
        if epoch < known:
            return
        if epoch == known and markers.transaction_version == 2 and producer_id in self.open and epoch != EPOCH_MAX:
            return
        self.epochs[producer_id] = epoch
        if (ended := self.open.pop(producer_id, None)) is not None:
            assert ended == transaction, "a marker ended a transaction that it is not of"
            self.decisions[ended] = markers.committed


T = TypeVar("T")


def pick(things: Sequence[T], number: int) -> T:
    return things[number % len(things)]


class World:
    """Producers with one transactional id, their coordinator, and the partitions that they write to.

    A step is a method below `steps`, with a number for whom or what it is about and one for how.
    """

    def __init__(self, epoch: int) -> None:
        self.coordinator = Coordinator(
            transactional_id_expiration_ms="100000", transaction_remove_expired_transaction_cleanup_interval_ms="30000"
        )
        if epoch >= 0:
            self.coordinator.put(producer_id=50, producer_epoch=epoch, last_update_timestamp=self.coordinator.now_ms)
        self.producers: list[Producer] = []
        self.logs = {partition: Log() for partition in PARTITIONS}
        self.number = 0
        self.decided: dict[int, bool] = {}
        self.partitions: dict[int, set[TopicPartition]] = {}
        self.pending: list[tuple[PendingMarkers, int]] = []
        self.outdated: list[tuple[PendingMarkers, int]] = []
        self.reports: list[MarkersWritten] = []
        self.delayed: list[tuple[Command[Any], int, int]] = []
        self.holders: dict[tuple[int, int], Producer] = {}
        self.seen = len(self.coordinator.log)

    # -- the coordinator

    @property
    def known(self) -> TransactionRecord | None:
        return self.coordinator.shard.table.transactions.get(ID)

    def submit(self, command: Any) -> Any:
        try:
            return self.coordinator.submit(command)
        finally:
            self.coordinator.is_writable = True
            self.look()

    def look(self) -> None:
        """Number the transactions, and note what was decided of each."""
        before = self.coordinator.log[self.seen - 1] if self.seen else None
        for record in self.coordinator.log[self.seen :]:
            self.follow(before, record)
            before = record
        self.seen = len(self.coordinator.log)
        for markers in self.coordinator.markers:
            assert markers.partitions == tuple(sorted(self.partitions[self.number]))
            assert markers.committed is self.decided[self.number]
            self.pending.append((markers, self.number))
        self.coordinator.markers = []

    def follow(self, before: TransactionRecord | None, record: TransactionRecord) -> None:
        if record.gone:
            assert before is not None
            assert before.state not in PREPARED | {TransactionState.ONGOING}
        elif record.state is TransactionState.ONGOING:
            assert before is not None
            if before.state is not TransactionState.ONGOING:
                assert before.state not in PREPARED
                self.number += 1
                self.partitions[self.number] = set()
            assert record.partitions >= self.partitions[self.number]
            self.partitions[self.number] = set(record.partitions)
        elif record.state in PREPARED and record.partitions:
            assert self.number not in self.decided, "decided twice"
            self.decided[self.number] = record.state in COMMITS
            assert record.partitions == self.partitions[self.number]
        elif record.state in COMPLETE:
            assert before is not None
            assert before.state in PREPARED
            assert (before.state in COMMITS) is (record.state in COMMITS)

    # -- producers

    def owner(self, producer: Producer, identity: tuple[int, int]) -> None:
        """No two instances are ever the same to a log, and nobody has the epoch that is for fencing."""
        assert self.holders.setdefault(identity, producer) is producer
        assert identity[1] < EPOCH_MAX
        producer.identity = identity

    # -- steps: producers

    def start(self, which: int, how: int) -> None:
        if len(self.producers) < PRODUCERS_MAX:
            producer = Producer(version=pick((0, 2, 2), which))
            self.producers.append(producer)
            producer.asks = self.coordinator.init_command(timeout_ms=pick((5000, 5000, 50), how))
            self.ask(producer)

    def ask_again(self, which: int, how: int) -> None:
        """Whoever has not heard sends again; the answer may be lost."""
        if waiting := [p for p in self.producers if p.asks is not None and not p.is_dead]:
            self.ask(pick(waiting, which), is_lost=how % 3 == 0)

    def end(self, which: int, how: int) -> None:
        """A producer ends what it has begun, if anything; the answer may be lost."""
        if idle := self.idle():
            producer = pick(idle, which)
            producer.asks = EndTxn(ID, *producer.identity, how % 2 == 0, producer.version)
            self.ask(producer, is_lost=how % 3 == 0)

    def recover(self, which: int, how: int) -> None:
        """A producer wants to go on after an error; the answer may be lost."""
        if idle := self.idle():
            producer = pick(idle, which)
            producer.asks = InitProducerId(ID, 1000, *producer.identity)
            self.ask(producer, is_lost=how % 2 == 0)

    def write_some(self, which: int, how: int) -> None:
        if idle := self.idle():
            self.write(pick(idle, which), pick(PARTITIONS, how))

    def transact(self, which: int, how: int) -> None:
        """A whole transaction, if nothing is in its way."""
        if idle := self.idle():
            producer = pick(idle, which)
            self.write(producer, pick(PARTITIONS, how))
            self.write(producer, pick(PARTITIONS, how // 2))
            if not producer.is_dead:
                producer.asks = EndTxn(ID, *producer.identity, how % 4 > 0, producer.version)
                self.ask(producer)
                self.mark_all(which, how)

    def come_late(self, which: int, _how: int) -> None:
        """Something that was sent before comes once more, and nobody hears the answer."""
        if self.delayed:
            self.deliver(*pick(self.delayed, which))

    # -- what producers do

    def idle(self) -> list[Producer]:
        return [p for p in self.producers if p.asks is None and not p.is_dead and p.identity[0] >= 0]

    def ask(self, producer: Producer, *, is_lost: bool = False) -> None:
        command = producer.asks
        assert command is not None
        self.delayed.append((command, producer.version, producer.transaction))
        try:
            answer = self.submit(self.with_spare(command))
        except ApiError as error:
            if not is_lost:
                producer.is_dead = error.code not in AGAIN
                if error.code is ErrorCode.INVALID_TXN_STATE:  # Not fatal: whoever hears it may abort.
                    producer.is_dead, producer.asks = False, None
            return
        if isinstance(command, EndTxn) and producer.transaction:
            assert self.decided[producer.transaction] is command.committed, "told what did not happen"
        if not is_lost:
            producer.asks, producer.transaction = None, 0
            self.owner(producer, (answer.producer_id, answer.producer_epoch))

    def with_spare(self, command: InitProducerId | EndTxn) -> InitProducerId | EndTxn:
        self.coordinator.next_producer_id += 1
        spare = self.coordinator.next_producer_id
        if isinstance(command, EndTxn):
            return EndTxn(
                ID,
                command.producer_id,
                command.producer_epoch,
                command.committed,
                command.transaction_version,
                spare_producer_id=spare,
            )
        return InitProducerId(
            ID, command.transaction_timeout_ms, command.producer_id, command.producer_epoch, spare_producer_id=spare
        )

    def write(self, producer: Producer, partition: TopicPartition) -> None:
        """Older producers add the partition first, for the others the broker does."""
        if producer.is_dead:
            return
        wanted = frozenset({partition})
        add = AddPartitions(ID, *producer.identity, wanted)
        verify = VerifyPartitions(ID, *producer.identity, wanted, add=producer.version == 2)
        self.delayed.append((verify if producer.version == 2 else add, producer.version, producer.transaction))
        try:
            if producer.version < 2:
                self.submit(add)
            codes = self.submit(verify)
        except ApiError as error:
            producer.is_dead = error.code not in AGAIN
            return
        assert codes == {partition: ErrorCode.NONE}
        assert producer.transaction in (0, self.number), "it was moved to another transaction"
        producer.transaction = self.number
        assert self.logs[partition].write(*producer.identity, self.number)

    def deliver(self, command: Any, version: int, transaction: int) -> None:
        known = self.known
        now = (-1, -1) if known is None else (known.producer_id, known.producer_epoch)
        sent = (command.producer_id, command.producer_epoch)
        ongoing = known is not None and known.state is TransactionState.ONGOING
        if version == 0 and sent == now and (transaction != self.number or not ongoing):
            return  # Only a connection that keeps the order protects older clients from this.
        if version == 2 and isinstance(command, VerifyPartitions) and sent == now and not ongoing:
            return  # The broker that asks has dropped the batch by then.
        written = len(self.coordinator.log)
        if isinstance(command, InitProducerId | EndTxn):
            command = self.with_spare(command)
        with suppress(ApiError):
            self.submit(command)
        if isinstance(command, EndTxn | AddPartitions | VerifyPartitions) and sent != now:
            assert len(self.coordinator.log) == written, "a zombie changed something"

    # -- steps: markers

    def mark(self, which: int, how: int) -> None:
        """A marker is written; the coordinator may hear of it now, later, or more than once."""
        if not self.pending:
            return
        markers, transaction = pick(self.pending, which)
        partition = pick(sorted(markers.partitions), how)
        self.logs[partition].mark(markers, transaction)
        self.reports.append(markers.written([partition]))
        if how % 2:
            self.tell(self.reports[-1])

    def mark_all(self, _which: int, _how: int) -> None:
        """Every marker is written, and the coordinator hears of it."""
        for markers, transaction in list(self.pending):
            for partition in markers.partitions:
                self.logs[partition].mark(markers, transaction)
            self.reports.append(markers.written(markers.partitions))
            self.tell(self.reports[-1])

    def tell_late(self, which: int, _how: int) -> None:
        if self.reports:
            self.tell(pick(self.reports, which))

    def mark_late(self, which: int, how: int) -> None:
        """A marker that was repeated on the way comes long after it was acknowledged."""
        if self.outdated:
            markers, transaction = pick(self.outdated, which)
            self.logs[pick(sorted(markers.partitions), how)].mark(markers, transaction)

    def tell(self, report: MarkersWritten) -> None:
        self.submit(report)
        self.drop_what_is_over()

    def drop_what_is_over(self) -> None:
        known = self.known
        if known is None or known.state not in PREPARED:
            self.outdated += [pair for pair in self.pending if pair[0].transaction_version == 2]
            self.pending.clear()

    # -- steps: the world

    def pass_time(self, which: int, _how: int) -> None:
        self.coordinator.pass_time(pick((1, 1, 20, 60, 60, 6000, 150_000), which))
        self.coordinator.is_writable = True
        self.look()
        self.drop_what_is_over()

    def fail_over(self, _which: int, _how: int) -> None:
        self.pending.clear()
        self.coordinator.fail_over()
        self.look()

    def fail_to_write(self, _which: int, _how: int) -> None:
        """What is written next is not."""
        self.coordinator.is_writable = False

    # -- what holds

    def what_was_replayed_is_what_is_known(self) -> None:
        live, loaded = self.coordinator.shard.table, self.coordinator.load().table
        assert loaded.transactions == live.transactions
        assert loaded.idle == live.idle
        assert loaded.unmarked.keys() == live.unmarked.keys()

    def every_partition_hears_the_same(self) -> None:
        for log in self.logs.values():
            for number, committed in log.decisions.items():
                assert self.decided[number] is committed

    def nothing_is_left_open(self) -> None:
        """Once everything works again, and all markers are written."""
        self.coordinator.is_writable = True
        for _ in range(5):  # What is going on times out first, and its abort may have to be tried again.
            self.mark_all(0, 0)
            self.coordinator.pass_time(6000)
            self.look()
        known = self.known
        assert known is None or known.state not in PREPARED | {TransactionState.ONGOING}
        for partition, log in self.logs.items():
            assert not log.open, f"a transaction hangs on {partition}"
        self.every_partition_hears_the_same()


Step: TypeAlias = Callable[[World, int, int], None]

STEPS: tuple[Step, ...] = (
    *(World.transact, World.transact, World.transact, World.start, World.start, World.write_some, World.write_some),
    *(World.end, World.end, World.ask_again, World.ask_again, World.ask_again, World.recover),
    *(World.come_late, World.come_late, World.come_late, World.mark, World.mark_all, World.mark_all),
    *(World.tell_late, World.mark_late, World.pass_time, World.fail_over, World.fail_to_write),
)


EPOCHS = (-1, -1, 32_760, 32_763, 32_765)
LIVES_PER_EXAMPLE = 10


def live(epoch: int, steps: Iterable[tuple[Step, int, int]]) -> None:
    world = World(epoch)
    for step, which, how in steps:
        step(world, which, how)
        world.every_partition_hears_the_same()
    world.what_was_replayed_is_what_is_known()
    world.nothing_is_left_open()


@pytest.mark.fuzz
@given(random=st.randoms(use_true_random=True))
def test_transactions_stay_whole(random: Random) -> None:
    """Every step is as likely as every other, which takes a life further than hypothesis would."""
    for _ in range(LIVES_PER_EXAMPLE):
        steps = [(random.choice(STEPS), random.randrange(1000), random.randrange(12)) for _ in range(60)]
        live(random.choice(EPOCHS), steps)


@pytest.mark.fuzz
@given(
    epoch=st.sampled_from(EPOCHS),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40), st.integers(0, 11)), max_size=40),
)
def test_transactions_stay_whole_in_short_lives(epoch: int, steps: list[tuple[Step, int, int]]) -> None:
    live(epoch, steps)
