"""A connection is closed after its idle time, not before and not much later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from ottla.server.idle import TICKS_PER_IDLE_TIME, IdleWheel


class Clockwork:
    """A loop with one timer, which a test fires by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._callback: Callable[[], None] | None = None

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Clockwork:
        self.seconds = seconds
        self._callback = callback
        return self

    def cancel(self) -> None:
        self._callback = None

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            if self._callback is not None:
                self._callback()

    def wheel(self, idle_ms_max: int = 600_000) -> IdleWheel:
        return IdleWheel(cast(asyncio.AbstractEventLoop, self), idle_ms_max)


class Idler:
    def __init__(self) -> None:
        self.active_tick = 0
        self.idle_bucket = 0
        self.closed = False

    def close_idle(self) -> None:
        self.closed = True


def test_nothing_happens_for_the_idle_time() -> None:
    clockwork, idler = Clockwork(), Idler()
    clockwork.wheel().add(idler)
    clockwork.tick(TICKS_PER_IDLE_TIME)
    assert not idler.closed
    clockwork.tick()
    assert idler.closed


def test_a_sign_of_life_starts_the_time_anew() -> None:
    clockwork, idler = Clockwork(), Idler()
    wheel = clockwork.wheel()
    clockwork.tick(5)
    wheel.add(idler)
    for _ in range(50):
        clockwork.tick(TICKS_PER_IDLE_TIME)
        assert not idler.closed
        idler.active_tick = wheel.tick
    clockwork.tick(TICKS_PER_IDLE_TIME + 1)
    assert idler.closed


def test_one_that_has_gone_is_forgotten() -> None:
    clockwork, idler = Clockwork(), Idler()
    wheel = clockwork.wheel()
    wheel.add(idler)
    wheel.remove(idler)
    clockwork.tick(3 * TICKS_PER_IDLE_TIME)
    assert not idler.closed


def test_a_tick_is_a_part_of_the_idle_time_and_there_may_be_none() -> None:
    clockwork = Clockwork()
    clockwork.wheel(32_000).add(Idler())
    assert clockwork.seconds == 1.0
    silent = Clockwork()
    silent.wheel(-1).add(Idler())
    assert silent.seconds == 0.0


def test_a_stopped_wheel_turns_no_more() -> None:
    clockwork, idler = Clockwork(), Idler()
    wheel = clockwork.wheel()
    wheel.add(idler)
    wheel.stop()
    clockwork.tick(100)
    assert not idler.closed
