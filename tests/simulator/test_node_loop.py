"""Virtual time: order, death, pauses and clocks of processes."""

from __future__ import annotations

import asyncio

from simulator.room import Room
from simulator.timeline import SECOND_US


def test_a_quiet_hour_takes_no_time_and_timers_keep_their_order() -> None:
    room, seen = Room(1), []
    loop = room.process("a")

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((seconds, round(room.timeline.now_us / SECOND_US)))

    for seconds in (3600, 1, 60):
        loop.start(wait(seconds))
    room.timeline.run(4000 * SECOND_US)
    assert seen == [(1, 1), (60, 60), (3600, 3600)]


def test_nothing_of_a_killed_process_runs_again() -> None:
    room = Room(1)
    seen: list[int | str] = []
    loop = room.process("a")

    async def count() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(room.timeline.now_us // SECOND_US)

    loop.start(count())
    room.timeline.run(3 * SECOND_US + 1000)
    loop.kill()
    loop.call_soon(seen.append, "after death")
    room.timeline.run(10 * SECOND_US)
    assert seen == [1, 2, 3]


def test_a_paused_process_does_later_what_fell_due() -> None:
    room = Room(1)
    seen: list[str] = []
    loop = room.process("a")
    loop.start(_note_after(seen, 1))
    room.timeline.run(SECOND_US // 2)
    loop.pause()
    room.timeline.run(5 * SECOND_US)
    assert seen == []
    loop.resume()
    room.timeline.run(6 * SECOND_US)
    assert seen == ["woken"]


def test_a_clock_that_is_fast_wakes_its_process_early() -> None:
    room = Room(1)
    seen: list[str] = []
    loop = room.process("a")
    loop.set_rate(2.0)
    loop.start(_note_after(seen, 10))
    room.timeline.run(6 * SECOND_US)
    assert seen == ["woken"]


def test_an_exception_that_nobody_catches_is_a_finding() -> None:
    room = Room(1)

    async def fail() -> None:
        raise ValueError("oh")

    room.process("a").start(fail())
    room.timeline.run(SECOND_US)
    assert "ValueError: oh" in room.findings.found[0].text


async def _note_after(seen: list[str], seconds: float) -> None:
    await asyncio.sleep(seconds)
    seen.append("woken")
