"""Who waits for a vote to be on disk waits for that vote or a later one, and for nothing once nothing is written."""

from __future__ import annotations

import asyncio

import pytest

from ottla.core.quorum.effects import ElectionState, StoreState
from ottla.runtime.quorum_state_store import StateStore


def effect(version: int) -> StoreState:
    return StoreState(version, ElectionState(version))


def test_the_newest_state_is_written_and_all_that_wait_for_older_ones_go_on() -> None:
    async def scenario() -> None:
        written: list[int] = []
        told: list[int] = []
        go_on = asyncio.Event()

        async def store(state: ElectionState) -> None:
            written.append(state.epoch)
            await go_on.wait()

        states = StateStore(store, told.append)
        assert states.want(effect(1))
        writing = asyncio.create_task(states.write())
        waiting = [asyncio.create_task(states.reached(version)) for version in (1, 2, 3)]
        await asyncio.sleep(0)
        assert not states.want(effect(2)), "one writes already"
        assert not states.want(effect(3))
        assert not any(task.done() for task in waiting)
        go_on.set()
        await asyncio.gather(writing, *waiting)
        assert written == told == [1, 3], "2 was never needed"
        assert states.is_busy is False
        await states.reached(3)

    asyncio.run(scenario())


def test_a_failed_write_is_raised_and_nobody_waits_for_ever() -> None:
    async def scenario() -> None:
        async def store(_: ElectionState) -> None:
            raise OSError("no")

        states = StateStore(store, lambda version: None)
        assert states.want(effect(1))
        waiting = asyncio.create_task(states.reached(1))
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="no"):
            await states.write()
        assert not waiting.done()
        states.give_up()
        await waiting
        await states.reached(99)

    asyncio.run(scenario())
