"""Fetches wait at a leader until there is something for them, and never longer than they were told."""

from __future__ import annotations

import asyncio

from ottla.runtime.quorum_news import News


def test_who_is_told_looks_and_waits_on_if_there_is_nothing() -> None:
    async def scenario() -> None:
        news, there = News(), [False]
        waiting = asyncio.create_task(news.wait_while(lambda: not there[0], 60_000))
        await asyncio.sleep(0)
        news.tell()
        await asyncio.sleep(0)
        assert not waiting.done()
        there[0] = True
        news.tell()
        await waiting

    asyncio.run(scenario())


def test_a_wait_ends_by_itself_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        news = News()
        await news.wait_while(lambda: True, 1)
        await news.wait_while(lambda: True, 0)
        await news.wait_while(lambda: True, -5)
        gone = asyncio.create_task(news.wait_while(lambda: True, 60_000))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert not news._waiters

    asyncio.run(scenario())
