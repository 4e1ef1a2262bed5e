"""Descriptions of groups, of either kind: thousands may be asked for at once, and others have their turn between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

from ottla.api.authorized_operations import ON_GROUP

GROUPS_PER_TURN: Final = 64


class Described(Protocol):
    """A group in the answer to a request."""

    error_code: int
    authorized_operations: int


D = TypeVar("D", bound=Described)


async def describe_all(
    group_ids: Iterable[str], describe: Callable[[str], Awaitable[D]], *, with_operations: bool
) -> list[D]:
    """Each group, and if that is wanted what may be done with it."""
    groups = []
    for index, group_id in enumerate(group_ids):
        if index % GROUPS_PER_TURN == GROUPS_PER_TURN - 1:
            await asyncio.sleep(0)
        group = await describe(group_id)
        if with_operations and not group.error_code:
            group.authorized_operations = ON_GROUP
        groups.append(group)
    return groups
