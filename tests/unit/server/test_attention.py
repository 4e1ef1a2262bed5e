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


def test_the_end_of_a_turn_is_told_once_all_was_read() -> None:
    class Ended:
        count = 0

        def end(self) -> None:
            self.count += 1

    async def main() -> None:
        attention = Attention(asyncio.get_running_loop())
        turn = attention.turn = Ended()
        for _ in range(3):
            attention.touch()
        assert turn.count == 0
        await asyncio.sleep(0)
        assert turn.count == 1

    asyncio.run(main())


def test_a_turn_that_fails_to_end_does_not_keep_the_next_one_from_it() -> None:
    class Failing:
        count = 0

        def end(self) -> None:
            self.count += 1
            raise RuntimeError("a bug")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        heard: list[object] = []
        loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
        attention = Attention(loop)
        turn = attention.turn = Failing()
        for _ in range(2):
            attention.touch()
            await asyncio.sleep(AWAKE_SECONDS * 1000)
        assert turn.count == len(heard) >= 2

    asyncio.run(main())
