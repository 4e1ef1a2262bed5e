"""Timers: a session that ends too late keeps a dead member, one that ends too early drops a live one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.timers import Timers


def test_keys_come_due_once_and_in_the_order_of_their_deadlines() -> None:
    timers: Timers[str] = Timers()
    timers.set("late", 30)
    timers.set("early", 10)
    timers.set("between", 20)
    assert timers.due(9) == []
    assert timers.due(20) == ["early", "between"]
    assert timers.due(20) == []
    assert timers.next_deadline_ms() == 30


def test_a_timer_that_is_set_anew_forgets_its_old_deadline() -> None:
    timers: Timers[str] = Timers()
    timers.set("session", 10)
    timers.set("session", 50)
    assert timers.next_deadline_ms() == 50
    assert timers.due(49) == []
    timers.set("session", 20)
    assert timers.due(20) == ["session"]
    assert len(timers) == 0
    assert timers.due(100) == []


def test_a_cancelled_timer_never_comes_due() -> None:
    timers: Timers[str] = Timers()
    timers.set("session", 10)
    timers.cancel("session")
    assert "session" not in timers
    assert timers.next_deadline_ms() is None
    assert timers.due(1_000) == []


def test_setting_one_timer_again_and_again_does_not_grow() -> None:
    timers: Timers[str] = Timers()
    for deadline_ms in range(100_000):
        timers.set("heartbeat", deadline_ms)
    assert len(timers._heap) < 200


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 100)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 100)),
    ),
    max_size=200,
)


@given(STEPS)
def test_timers_are_a_dictionary_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    for name, key, time_ms in steps:
        if name == "set":
            timers.set(key, time_ms)
            model[key] = time_ms
        elif name == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            due = {key for key, deadline_ms in model.items() if deadline_ms <= time_ms}
            assert set(timers.due(time_ms)) == due
            for gone in due:
                del model[gone]
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)


def test_due_keys_can_be_taken_one_at_a_time() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 20)
    timers.set("b", 10)
    timers.set("c", 10)
    timers.cancel("c")
    assert timers.pop_due(9) is None
    assert [timers.pop_due(20), timers.pop_due(20), timers.pop_due(20)] == ["b", "a", None]
    assert len(timers) == 0
