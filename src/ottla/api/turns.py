"""Going through what a long request asks for, with turns for others in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(items: Iterable[T], per_turn: int) -> AsyncIterator[T]:
    """Each of them; after every `per_turn`, others are served first."""
    for number, item in enumerate(items):
        if number and not number % per_turn:
            await asyncio.sleep(0)
        yield item
