"""A loop that has just served a request looks for the next one, and then rests."""

from __future__ import annotations

import asyncio

from ottla.server.attention import AWAKE_SECONDS, Attention


def test_the_loop_stays_awake_for_a_moment_and_then_sleeps_again() -> None:
    async def story() -> tuple[bool, bool]:
        attention = Attention(asyncio.get_running_loop())
        attention.touch()
        at_once = attention.is_awake
        await asyncio.sleep(AWAKE_SECONDS * 1000)
        return at_once, attention.is_awake

    assert asyncio.run(story()) == (True, False)


def test_another_request_keeps_it_awake_without_a_second_spin() -> None:
    async def story() -> int:
        loop = asyncio.get_running_loop()
        attention = Attention(loop)
        attention.touch()
        ready = len(loop._ready)  # type: ignore[attr-defined]
        attention.touch()
        return len(loop._ready) - ready  # type: ignore[attr-defined]

    assert asyncio.run(story()) == 0
