"""Producer ids for this broker, never given out twice.

They come in blocks from the controller. A block is in the metadata log, on disk, before the first of its ids is used.
The ids that are left when a broker stops are lost, and there are enough of them.
"""

from __future__ import annotations

import asyncio

from ottla.core.controller.commands import AllocateProducerIds
from ottla.runtime.controller import ControllerDriver


class ProducerIds:
    """Hands out producer ids one by one."""

    __slots__ = ("_broker_epoch", "_broker_id", "_controller", "_end", "_next", "_refill")

    def __init__(self, controller: ControllerDriver, *, broker_id: int, broker_epoch: int) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = self._end = 0
        self._refill = asyncio.Lock()

    def next_or_none(self) -> int | None:
        """The same without waiting; None when a new block is needed."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """An id that nobody has had before; ApiError if the controller gives none."""
        while self._next == self._end:
            async with self._refill:
                if self._next == self._end:
                    block = await self._controller.submit(AllocateProducerIds(self._broker_id, self._broker_epoch))
                    self._next, self._end = block.first, block.first + block.size
        self._next += 1
        return self._next - 1
