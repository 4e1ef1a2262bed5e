"""A queue of those who wait for followers: each is told once, whatever ends the wait."""

from __future__ import annotations

import asyncio

from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.replication_waits import ReplicationWaits
from tests.unit.runtime.hosted import run


class Told:
    """A waiter that keeps what it is told."""

    def __init__(self) -> None:
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
