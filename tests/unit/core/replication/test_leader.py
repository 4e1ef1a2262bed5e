"""A leader and its followers: what is committed, who is in sync, and what must hold whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.core.replication.leader import CHASE_MS_MAX, LeaderReplication
from ottla.model.errors import ApiError, ErrorCode

LAG_MS = 30_000
EPOCH = 7


class Leader:
    """A leader whose log ends where a test says."""

    def __init__(
        self, isr: tuple[int, ...] = (1, 2, 3), *, end: int = 0, high_watermark: int = 0, min_insync: int = 1
    ) -> None:
        self.end = end
        self.now_ms = 1_000_000
        self.ineligible: set[int] = set()
        self.state = LeaderReplication(
            1,
            (1, 2, 3),
            isr,
            epoch_start_offset=end,
            high_watermark=high_watermark,
            min_insync=min_insync,
            lag_ms_max=LAG_MS,
            is_eligible=lambda broker, epoch: broker not in self.ineligible and epoch == EPOCH,
            now_ms=self.now_ms,
        )

    def fetched(self, follower: int, offset: int, *, epoch: int = EPOCH, start: int = 0) -> int:
        self.state.fetched(follower, epoch, offset, start, self.end, self.now_ms)
        return self.high_watermark()

    def high_watermark(self) -> int:
        return self.state.advance(self.end, self.now_ms)

    def proposal(self) -> tuple[int, ...] | None:
        return self.state.proposal(self.end, self.now_ms)


def code_of(error: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return error.value.code


def test_what_all_in_sync_replicas_have_is_committed() -> None:
    leader = Leader(end=10)
    assert leader.fetched(2, 10) == 0
    assert leader.fetched(3, 4) == 4
    assert leader.fetched(3, 10) == 10


def test_a_new_leader_commits_nothing_before_its_followers_have_fetched() -> None:
    leader = Leader(end=10, high_watermark=6)
    assert leader.high_watermark() == 6
    assert leader.fetched(2, 10) == 6


def test_a_leader_alone_in_the_isr_commits_what_it_has() -> None:
    leader = Leader((1,), end=10)
    assert leader.state.is_alone
    assert leader.high_watermark() == 10


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    leader = Leader((1,), end=10, min_insync=2)
    assert leader.high_watermark() == 0
    leader.state.min_insync = 1
    assert leader.high_watermark() == 10


def test_a_follower_that_lags_for_too_long_is_to_leave_and_counts_until_it_has_left() -> None:
    leader = Leader(end=10)
    leader.fetched(2, 10)
    leader.fetched(3, 10)
    leader.now_ms += LAG_MS
    leader.end = 20
    leader.fetched(2, 20)
    assert leader.proposal() is None
    leader.now_ms += 1
    assert leader.proposal() == (1, 2)
    leader.state.asked((1, 2))
    assert leader.proposal() is None
    assert leader.high_watermark() == 10
    leader.state.take((1, 2, 3), (1, 2), leader.now_ms)
    assert leader.high_watermark() == 20


def test_who_has_everything_of_a_quiet_partition_does_not_lag() -> None:
    leader = Leader(end=10)
    leader.fetched(2, 10)
    leader.fetched(3, 10)
    for _ in range(10):
        leader.now_ms += LAG_MS
        assert leader.proposal() is None
    leader.end = 11
    assert leader.proposal() is None


def test_who_reaches_what_there_was_at_its_last_fetch_had_caught_up_then() -> None:
    leader = Leader(end=10)
    leader.fetched(3, 10)
    for _ in range(10):
        leader.fetched(2, leader.end - 5)
        leader.now_ms += LAG_MS // 2
        leader.end += 5
        leader.fetched(3, leader.end)
    assert leader.proposal() is None


def test_a_follower_joins_when_it_has_what_is_committed_and_the_start_of_the_epoch() -> None:
    leader = Leader((1, 2), end=10, high_watermark=4)
    leader.fetched(3, 4)
    assert leader.proposal() is None  # It has what is known to be committed, but the leader before knew of more.
    leader.fetched(3, 10)
    assert leader.proposal() == (1, 2, 3)
    leader.ineligible = {3}
    assert leader.proposal() is None
    leader.ineligible = set()
    leader.now_ms += CHASE_MS_MAX + 1
    leader.end = 20
    assert leader.fetched(2, 20) == 20
    leader.fetched(3, 15)
    assert leader.proposal() is None  # By now more is committed than it has.


def test_who_is_asked_for_counts_at_once() -> None:
    leader = Leader((1,), end=10)
    leader.high_watermark()
    leader.fetched(2, 10)
    assert leader.proposal() == (1, 2)
    leader.state.asked((1, 2))
    leader.end = 20
    leader.now_ms += CHASE_MS_MAX + 1
    assert leader.high_watermark() == 10
    leader.state.refused()
    assert leader.high_watermark() == 20


def test_a_follower_that_chases_is_waited_for_until_it_stops_or_may_not_join() -> None:
    leader = Leader((1,), end=10)
    leader.high_watermark()
    leader.fetched(2, 10)
    leader.end = 20
    assert leader.high_watermark() == 10
    leader.ineligible = {2}
    assert leader.high_watermark() == 20
    leader.ineligible = set()
    leader.end = 30
    assert leader.high_watermark() == 20
    leader.now_ms += CHASE_MS_MAX + 1
    assert leader.high_watermark() == 30


def test_an_older_life_of_a_follower_is_refused_and_a_new_one_starts_over() -> None:
    leader = Leader(end=10)
    leader.fetched(2, 10)
    leader.fetched(3, 10)
    with pytest.raises(ApiError) as older:
        leader.fetched(2, 10, epoch=EPOCH - 1)
    assert code_of(older) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.end = 20
    leader.fetched(3, 20)
    assert leader.fetched(2, 5, epoch=EPOCH + 1) == 10
    assert leader.state.followers[2].end_offset == 5


def test_who_is_no_replica_is_refused() -> None:
    with pytest.raises(ApiError) as stranger:
        Leader().fetched(4, 0)
    assert code_of(stranger) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_low_watermark_is_that_of_the_replica_that_has_most() -> None:
    leader = Leader((1, 2), end=10)
    assert leader.state.low_watermark(8) == -1
    leader.fetched(2, 10, start=5)
    assert leader.state.low_watermark(8) == 5
    leader.fetched(3, 10, start=2)
    assert leader.state.low_watermark(8) == 2
    leader.ineligible = {3}
    assert leader.state.low_watermark(8) == 5


class Replicas(RuleBasedStateMachine):
    """A leader, followers that really hold offsets, and a controller that grants, refuses or loses what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.end = 3
        self.lives = {2: 1, 3: 1}
        self.ends = {2: 0, 3: 0}
        self.active = {2, 3}
        self.committed = 0
        self.controllers_isr: tuple[int, ...] = (1, 2, 3)
        self.in_doubt: list[tuple[int, ...]] = []
        self.min_insync = 2
        self.state = LeaderReplication(
            1,
            (1, 2, 3),
            (1, 2, 3),
            epoch_start_offset=3,
            high_watermark=0,
            min_insync=2,
            lag_ms_max=100,
            is_eligible=lambda broker, life: broker in self.active and self.lives[broker] == life,
            now_ms=0,
        )

    @initialize(isr=st.sampled_from([(1, 2, 3), (1, 2), (1, 3), (1,)]))
    def begin(self, isr: tuple[int, ...]) -> None:
        self.controllers_isr = isr
        self.state.take((1, 2, 3), isr, 0)

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        self.end += count
        self.advance()

    @rule(ms=st.sampled_from([1, 60, 200, 2000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.advance()

    @rule(follower=st.sampled_from([2, 3]), count=st.integers(0, 4))
    def fetch(self, follower: int, count: int) -> None:
        offset = self.ends[follower]
        self.state.fetched(follower, self.lives[follower], offset, 0, self.end, self.now_ms)
        self.advance()
        self.ends[follower] = min(offset + count, self.end)

    @rule(follower=st.sampled_from([2, 3]))
    def fetch_of_an_older_life(self, follower: int) -> None:
        before = self.state.followers[follower].end_offset
        if self.lives[follower] > 1 and self.state.followers[follower].broker_epoch == self.lives[follower]:
            with pytest.raises(ApiError):
                self.state.fetched(follower, self.lives[follower] - 1, self.end, 0, self.end, self.now_ms)
            assert self.state.followers[follower].end_offset == before

    @rule(follower=st.sampled_from([2, 3]), lost=st.integers(0, 3))
    def restart_unclean(self, follower: int, lost: int) -> None:
        """The controller takes it out of the ISR before it may fetch again."""
        self.settle_doubts()
        self.lives[follower] += 1
        self.ends[follower] = max(self.ends[follower] - lost, 0)
        self.controllers_isr = tuple(r for r in self.controllers_isr if r != follower)
        self.state.take((1, 2, 3), self.controllers_isr, self.now_ms)
        self.advance()

    @rule(follower=st.sampled_from([2, 3]))
    def fence_or_unfence(self, follower: int) -> None:
        self.settle_doubts()
        self.active ^= {follower}
        if follower not in self.active:
            self.controllers_isr = tuple(r for r in self.controllers_isr if r != follower)
            self.state.take((1, 2, 3), self.controllers_isr, self.now_ms)
        self.advance()

    @precondition(lambda self: self.state.pending_isr is None)
    @rule(outcome=st.sampled_from(["granted", "refused", "lost", "done, and the answer is lost"]))
    def change_isr(self, outcome: str) -> None:
        wanted = self.state.proposal(self.end, self.now_ms)
        if wanted is None:
            return
        self.state.asked(wanted)
        if outcome == "refused" or any(r != 1 and r not in self.active for r in wanted):
            self.state.refused()
        elif outcome == "granted":
            self.controllers_isr = wanted
            self.state.take((1, 2, 3), wanted, self.now_ms)
        elif outcome == "done, and the answer is lost":
            self.controllers_isr = wanted
        self.advance()

    @rule()
    def settle_doubts(self) -> None:
        """The metadata arrives."""
        if self.state.pending_isr is not None:
            self.state.take((1, 2, 3), self.controllers_isr, self.now_ms)
        self.advance()

    def advance(self) -> None:
        before = self.state.high_watermark
        after = self.state.advance(self.end, self.now_ms)
        assert after >= before
        if after > before:
            assert len(self.state.isr) >= self.min_insync
            known = [self.state.followers[r].end_offset for r in self.state.isr if r != 1]
            assert after <= min([self.end, *known])

    @invariant()
    def whoever_the_controller_counts_in_has_everything_committed(self) -> None:
        for replica in self.controllers_isr:
            if replica != 1:
                assert self.ends[replica] >= self.state.high_watermark


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
