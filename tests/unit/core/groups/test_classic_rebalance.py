"""Timers of classic groups that are left over, or set by others."""

from __future__ import annotations

import pytest

from ottla.core.groups.classic_rebalance import JOIN, REBALANCE, SESSION, SYNC, rebalance_soon
from ottla.core.groups.records import ClassicGroupRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.coordinator import REBALANCE_MS, Coordinator


def test_somebody_else_can_have_a_stable_group_rebalance() -> None:
    c = Coordinator()
    members = c.stable(2)
    rebalance_soon(c.shard.state, "g", c.now_ms)
    c.pass_ms(0)
    assert [c.beat(member_id) for member_id in members] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    rebalance_soon(c.shard.state, "g", c.now_ms)
    c.pass_ms(0)
    assert c.group().state_name == "PreparingRebalance"


@pytest.mark.parametrize("key", [(JOIN, "g"), (SYNC, "g"), (SESSION, "g", "m"), (REBALANCE, "g")])
@pytest.mark.parametrize("state", ["gone", "stable"])
def test_a_timer_that_outlived_its_cause_does_nothing(key: tuple[str, ...], state: str) -> None:
    c = Coordinator()
    c.stable(1)
    if state == "gone":
        c.shard.replay(ClassicGroupRecord(group_id="g", gone=True), -1)
    elif key[0] == REBALANCE:
        return
    before = len(c.log)
    c.shard.state.timers.set(key, c.now_ms)
    c.pass_ms(0)
    assert len(c.log) == before
    assert state == "gone" or c.group().state_name == "Stable"


def test_the_timer_of_a_pending_member_that_was_replaced_does_not_end_the_wait_for_others() -> None:
    c = Coordinator(delay_ms=3000)
    _, ticket = c.new_member()
    c.shard.state.timers.set((SESSION, "g", "stranger"), c.now_ms + 1)
    c.pass_ms(2999)
    assert ticket in c.open
    c.pass_ms(REBALANCE_MS)
    assert ticket in c.answers
