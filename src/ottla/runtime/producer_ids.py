"""Producer ids for this broker, never given out twice.

They come in blocks from the controller. A block is in the metadata log, on disk, before the first of its ids is used.
The ids that are left when a broker stops are lost, and there are enough of them. While there is no controller to ask,
producers are told to come again.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ottla.core.controller.commands import AllocateProducerIds, AnswerT, Command
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.network import PeerError


class CommandChannel(Protocol):
    """The way to the active controller."""

    async def submit(self, command: Command[AnswerT]) -> AnswerT: ...


class ProducerIds:
    """Hands out producer ids one by one."""

    __slots__ = ("_broker_epoch", "_broker_id", "_controller", "_end", "_next", "_refill")

    def __init__(self, controller: CommandChannel, *, broker_id: int, broker_epoch: int) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = self._end = 0
        self._refill: asyncio.Future[None] | None = None

    def next_or_none(self) -> int | None:
        """The same without waiting; None when a new block is needed."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """An id that nobody has had before; ApiError if the controller gives none.

        COORDINATOR_LOAD_IN_PROGRESS, which producers wait out, if there is no controller to ask.
        """
        while self._next == self._end:
            if self._refill is None:
                self._refill = asyncio.ensure_future(self._take_block())
                self._refill.add_done_callback(self._refill_ended)
            await asyncio.shield(self._refill)
        self._next += 1
        return self._next - 1

    async def _take_block(self) -> None:
        """One at a time, for all who wait."""
        try:
            block = await self._controller.submit(AllocateProducerIds(self._broker_id, self._broker_epoch))
        except (PeerError, ApiError) as error:
            if isinstance(error, ApiError) and error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            message = f"no controller gives out producer ids now, try again: {error}"
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error
        self._next, self._end = block.first, block.first + block.size

    def _refill_ended(self, refill: asyncio.Future[None]) -> None:
        self._refill = None
        if not refill.cancelled():
            refill.exception()  # Looked at, even if nobody waits any more.
