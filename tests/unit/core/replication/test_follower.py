"""What a follower makes of its leader's answers, and that two logs become one whatever happened to them before."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.replication.follower import (
    Decision,
    FollowerState,
    OwnLog,
    Step,
    backoff_ms,
    is_expected,
    understand_divergence,
    understand_error,
    understand_start,
)
from ottla.log.epochs import LeaderEpochs
from ottla.model.errors import ErrorCode
from tests.unit.log.crash_disk import CrashDisk


def test_waits_begin_short_and_grow_to_their_bound() -> None:
    assert [backoff_ms(failures, 1000) for failures in (0, 1, 2, 6, 7, 99)] == [10, 20, 40, 640, 1000, 1000]
    assert backoff_ms(5, 0) == 1
    state = FollowerState(3)
    assert state.is_due(0)
    assert state.wait(100, 1000) == 10
    assert not state.is_due(109)
    assert state.is_due(110)
    assert state.wait(200, 1000) == 20
    state.succeeded()
    assert state.wait(300, 1000) == 10


def test_errors_are_waits_but_for_an_offset_that_is_not_there() -> None:
    assert understand_error(ErrorCode.OFFSET_OUT_OF_RANGE) == Decision(Step.FIND_START)
    assert understand_error(ErrorCode.FENCED_LEADER_EPOCH) == Decision(Step.WAIT, reason="FENCED_LEADER_EPOCH")
    assert understand_error(9999) == Decision(Step.WAIT, reason="error 9999")
    assert is_expected(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert not is_expected(ErrorCode.KAFKA_STORAGE_ERROR)
    assert not is_expected(ErrorCode.NONE)


def test_a_log_begins_anew_where_the_leaders_begins_if_nothing_of_it_is_left_there() -> None:
    assert understand_start(100, OwnLog(0, 80, 3)) == Decision(Step.RESTART, 100)
    # An empty log beyond the leader's end: nothing is lost with it.
    assert understand_start(100, OwnLog(900, 900, -1)) == Decision(Step.RESTART, 100)
    assert understand_start(10, OwnLog(0, 80, 3)).step is Step.WAIT
    assert understand_start(900, OwnLog(900, 900, -1)).step is Step.WAIT
    assert understand_start(-1, OwnLog(0, 80, 3)).step is Step.WAIT


def test_nothing_is_cut_when_the_leader_says_nothing_usable() -> None:
    own = OwnLog(0, 80, 3)
    assert understand_divergence(-1, -1, own, lambda _: (3, 80)).step is Step.WAIT
    assert understand_divergence(3, 80, own, lambda _: (3, 80)).step is Step.WAIT


def test_a_log_is_cut_to_the_end_of_the_epoch_that_both_know() -> None:
    own = OwnLog(0, 80, 3)
    assert understand_divergence(3, 50, own, lambda _: (3, 80)) == Decision(Step.TRUNCATE, 50)
    # The leader's last common epoch is 2, of which this log has less: it ends here where epoch 3 begins.
    assert understand_divergence(2, 70, own, lambda _: (2, 60)) == Decision(Step.TRUNCATE, 60)
    # The leader names an epoch that this log does not have; its own smaller one ends at 40.
    assert understand_divergence(2, 70, own, lambda _: (1, 40)) == Decision(Step.TRUNCATE, 40)


# -- a partition with three replicas, in memory

REPLICAS = range(3)


@dataclass
class Replica:
    """A log of records, each with its leader's epoch and a value of its own."""

    id: int
    records: list[tuple[int, int]] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=lambda: LeaderEpochs(CrashDisk(), "/none"))
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return len(self.records)

    def append(self, epoch: int, value: int) -> None:
        if epoch != self.epochs.latest:
            self.epochs.assign(epoch, self.end)
        self.records.append((epoch, value))

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(self.end)
        self.high_watermark = min(self.high_watermark, self.end)


class Partition:
    """Leaders, followers and a controller, each doing what theirs do, one step at a time."""

    def __init__(self, *, clean: bool) -> None:
        self.clean = clean
        self.replicas = [Replica(number) for number in REPLICAS]
        self.isr = set(REPLICAS)
        self.epoch = 0
        self.values = 0
        self.committed: list[tuple[int, int]] = []
        self.leader = self.replicas[0]
        self.ends: dict[int, int] = {}
        self.elect(0)

    def elect(self, number: int) -> None:
        if number not in self.isr:
            if self.clean:
                return
            self.isr = {number}
            # What was committed and is not here is lost, as everybody was told who switched this on.
            self.committed = self.committed[: self.common_with_committed(self.replicas[number])]
        self.epoch += 1
        self.leader = self.replicas[number]
        self.leader.epochs.assign(self.epoch, self.leader.end)
        self.epoch_start = self.leader.end
        self.ends = {}
        self.commit()

    def common_with_committed(self, replica: Replica) -> int:
        same = [a == b for a, b in zip(replica.records, self.committed, strict=False)]
        return same.index(False) if False in same else len(same)

    def write(self) -> None:
        self.values += 1
        self.leader.append(self.epoch, self.values)
        self.commit()

    def commit(self) -> None:
        ends = [self.leader.end if r == self.leader.id else self.ends.get(r, -1) for r in sorted(self.isr)]
        self.leader.high_watermark = max(self.leader.high_watermark, min(ends))
        if self.leader.high_watermark > len(self.committed):
            self.committed += self.leader.records[len(self.committed) : self.leader.high_watermark]
        assert self.leader.records[: len(self.committed)] == self.committed

    def fetch(self, number: int, count: int) -> bool:
        """One fetch of a follower; whether anything came of it."""
        follower, leader = self.replicas[number], self.leader
        if follower is leader:
            return False
        follower.epochs.truncate_from_end(follower.end)
        own = OwnLog(0, follower.end, follower.epochs.latest)
        if own.last_epoch >= 0:
            epoch, end = leader.epochs.end_offset_for(own.last_epoch, leader.end)
            if epoch < own.last_epoch or end < own.end_offset:
                return self.reconcile(follower, epoch, end, own)
        self.ends[number] = follower.end
        joins = follower.end >= leader.high_watermark and follower.end >= self.epoch_start
        if joins:
            self.isr.add(number)
        self.commit()
        sent = leader.records[follower.end : follower.end + count]
        for record in sent:
            follower.append(*record)
        follower.high_watermark = max(follower.high_watermark, min(leader.high_watermark, follower.end))
        return bool(sent)

    def reconcile(self, follower: Replica, epoch: int, end: int, own: OwnLog) -> bool:
        decision = understand_divergence(
            epoch, end, own, lambda epoch: follower.epochs.end_offset_for(epoch, follower.end)
        )
        assert decision.step is Step.TRUNCATE
        assert decision.offset < own.end_offset
        if self.clean:
            assert decision.offset >= min(follower.high_watermark, own.end_offset)
            shared = self.common_with_committed(follower)
            assert decision.offset >= shared, "a committed record was cut"
        follower.cut(decision.offset)
        return True

    def crash(self, number: int, lost: int) -> None:
        """A replica comes back with a shorter log; it has left the ISR, unless nobody else is in it."""
        if self.isr == {number} or (self.leader.id == number and self.isr == {number}):
            return
        self.isr.discard(number)
        replica = self.replicas[number]
        replica.cut(max(replica.end - lost, 0))
        if self.leader is replica:
            self.elect(min(self.isr))
        self.commit()

    def shrink(self, number: int) -> None:
        if number != self.leader.id:
            self.isr.discard(number)
            self.commit()

    def settle(self) -> None:
        steps = 0
        while sum(self.fetch(number, 100) for number in REPLICAS):
            steps += 1
            assert steps < 1000, "reconciliation does not end"
        for replica in self.replicas:
            assert replica.records == self.leader.records
            follower_epochs = [e for e in replica.epochs.entries if e.start_offset < replica.end]
            assert follower_epochs == [e for e in self.leader.epochs.entries if e.start_offset < self.leader.end]


def play(partition: Partition, rng: Random, steps: int) -> None:
    for _ in range(steps):
        action, number = rng.random(), rng.randrange(len(REPLICAS))
        if action < 0.35:
            partition.write()
        elif action < 0.7:
            partition.fetch(number, rng.randint(0, 3))
        elif action < 0.82:
            partition.elect(number)
        elif action < 0.9:
            partition.crash(number, rng.randint(0, 4))
        elif action < 0.96:
            partition.shrink(number)
        elif number != partition.leader.id:
            partition.replicas[number].high_watermark = 0  # Its checkpoint was lost.
    partition.settle()


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120))
def test_after_clean_elections_logs_are_equal_and_nothing_committed_was_ever_cut(seed: int, steps: int) -> None:
    partition = Partition(clean=True)
    play(partition, Random(seed), steps)
    assert partition.leader.records[: len(partition.committed)] == partition.committed


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120))
def test_after_any_elections_logs_are_equal(seed: int, steps: int) -> None:
    play(Partition(clean=False), Random(seed), steps)
