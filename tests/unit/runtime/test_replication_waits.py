"""A queue of those who wait for followers: each is told once, whatever ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.replication_waits import (
    COME_BACK_SECONDS,
    CROWDED_SECONDS,
    EXPECTED_MAX,
    REGULAR_SINCE,
    ReplicationWaits,
)
from tests.unit.runtime.hosted import run


class Told:
    """A waiter that keeps what it is told."""

    def __init__(self, *, is_behind: bool = False) -> None:
        self.is_behind = is_behind
        self.news: list[ErrorCode] = []
        self.heard = asyncio.Event()

    def replicated(self) -> None:
        self.news.append(ErrorCode.NONE)

    def not_replicated(self, error: ApiError) -> None:
        self.news.append(error.code)
        self.heard.set()


def test_those_below_the_high_watermark_are_released_in_order() -> None:
    async def scenario() -> None:
        waits = ReplicationWaits(asyncio.get_running_loop())
        told = [Told() for _ in range(4)]
        for number, waiter in enumerate(told):
            waits.add(number + 1, 60_000, waiter)
        waits.release(2)
        assert [waiter.news for waiter in told] == [[ErrorCode.NONE], [ErrorCode.NONE], [], []]
        waits.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        waits.release(9)
        assert [waiter.news for waiter in told[2:]] == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]] * 2
        assert len(waits) == 0

    run(scenario)


def test_the_shortest_time_ends_first_and_the_others_go_on() -> None:
    async def scenario() -> None:
        waits = ReplicationWaits(asyncio.get_running_loop())
        patient, hasty, hastier = Told(), Told(), Told()
        waits.add(1, 60_000, patient)
        waits.add(2, 20, hasty)
        waits.add(3, 1, hastier)
        await hasty.heard.wait()
        assert (hasty.news, hastier.news) == ([ErrorCode.REQUEST_TIMED_OUT], [ErrorCode.REQUEST_TIMED_OUT])
        assert patient.news == []
        waits.release(1)
        assert patient.news == [ErrorCode.NONE]

    run(scenario)


class Rhythm:
    """Producers that write again when they are answered, on a clock that a test moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_pipelined: bool = False) -> None:
        self.now = loop.time()
        self.is_pipelined = is_pipelined
        self.offset = 0
        self.waits = ReplicationWaits(cast(asyncio.AbstractEventLoop, self))
        self._loop = loop

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when, callback)

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self.offset += 1
            self.waits.add(self.offset, 60_000, Told(is_behind=self.is_pipelined and len(self.waits) > 0))

    def rounds(self, count: int, producers: int) -> None:
        for _ in range(count):
            self.write(producers)
            self.waits.release(self.offset)


def test_producers_that_come_back_regularly_are_expected() -> None:
    async def scenario() -> None:
        rhythm = Rhythm(asyncio.get_running_loop())
        waits = rhythm.waits
        rhythm.rounds(REGULAR_SINCE, 3)
        rhythm.write()
        assert not waits.expects_more(rhythm.offset - 1)  # It may have been by chance.
        rhythm.write(2)
        waits.release(rhythm.offset)
        assert not waits.expects_more(rhythm.offset)  # Nobody is there.
        start = rhythm.offset
        rhythm.write()
        assert waits.expects_more(start)
        assert not waits.expects_more(rhythm.offset)
        rhythm.write()
        assert waits.expects_more(start)
        rhythm.write()
        assert not waits.expects_more(start)  # All three are there.
        assert waits.expects_more(start + 1)

    run(scenario)


def test_a_producer_that_sends_several_requests_at_a_time_is_expected_at_once() -> None:
    async def scenario() -> None:
        rhythm = Rhythm(asyncio.get_running_loop(), is_pipelined=True)
        waits = rhythm.waits
        rhythm.rounds(1, 5)
        rhythm.write()
        assert waits.expects_more(rhythm.offset - 1)
        # What has been waiting all the time counts as what comes.
        rhythm.write(4)
        waits.release(rhythm.offset - 2)
        assert waits.expects_more(rhythm.offset - 2)
        rhythm.write(3)
        assert not waits.expects_more(rhythm.offset - 5)
        # When it is late, it is not expected for a while, and each time for longer.
        for pause in (1, 2, 4):
            waits.release(rhythm.offset)
            rhythm.write()
            assert waits.expects_more(rhythm.offset - 1) > COME_BACK_SECONDS
            rhythm.now += 2 * CROWDED_SECONDS
            rhythm.write(4)
            for _ in range(pause):
                waits.release(rhythm.offset)
                rhythm.write()
                assert not waits.expects_more(rhythm.offset - 1)
                rhythm.now += 2 * CROWDED_SECONDS
                rhythm.write(4)
        # Until it is in time again.
        waits.release(rhythm.offset)
        rhythm.write(5)
        for expected in (True, False, True):
            waits.release(rhythm.offset)
            rhythm.write()
            assert bool(waits.expects_more(rhythm.offset - 1)) == expected
            rhythm.now += 2 * CROWDED_SECONDS
            rhythm.write(4)

    run(scenario)


def test_producers_that_are_late_or_fewer_are_not_expected_any_more() -> None:
    async def scenario() -> None:
        rhythm = Rhythm(asyncio.get_running_loop())
        waits = rhythm.waits
        rhythm.rounds(REGULAR_SINCE + 1, 3)
        rhythm.write()
        assert waits.expects_more(rhythm.offset - 1)
        rhythm.now += 2 * COME_BACK_SECONDS
        assert not waits.expects_more(rhythm.offset - 1)
        waits.release(rhythm.offset)
        rhythm.rounds(REGULAR_SINCE - 1, 3)
        rhythm.write()
        assert not waits.expects_more(rhythm.offset - 1)
        # Those who write one at a time are waited for by nobody.
        waits.release(rhythm.offset)
        rhythm.rounds(REGULAR_SINCE + 2, 1)
        rhythm.write()
        assert not waits.expects_more(rhythm.offset - 1)
        # Nor is a crowd, when many of them are there.
        waits.release(rhythm.offset)
        rhythm.rounds(REGULAR_SINCE + 2, 2 * EXPECTED_MAX)
        start = rhythm.offset
        rhythm.write(EXPECTED_MAX - 1)
        assert waits.expects_more(start)
        rhythm.write()
        assert not waits.expects_more(start)
        # Nor is anybody by whom leads no longer.
        waits.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        rhythm.write()
        assert not waits.expects_more(rhythm.offset - 1)

    run(scenario)


def test_whoever_is_told_may_add_another() -> None:
    async def scenario() -> None:
        waits = ReplicationWaits(asyncio.get_running_loop())
        second = Told()

        class Chained(Told):
            def replicated(self) -> None:
                super().replicated()
                waits.add(1, 60_000, second)

        first = Chained()
        waits.add(1, 60_000, first)
        waits.release(1)
        assert (first.news, second.news) == ([ErrorCode.NONE], [ErrorCode.NONE])

    run(scenario)
