"""A metadata quorum that does what a test says, for what stands on one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.core.controller.builder import apply
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.records import Record
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.runtime.quorum import QuorumDescription, Subscriber


class ScriptedQuorum:
    """Commits at once, or when `commit` is called; leads when `lead` says so."""

    def __init__(self, image: MetadataImage, *, node_id: int = 1, leads: bool = True, at_once: bool = True) -> None:
        self.image = image
        self.node_id = node_id
        self.epoch = 1
        self.is_leader = leads
        self.at_once = at_once
        self.written: list[Record] = []
        self.refusal: OttlaError | None = None
        self._pending: list[tuple[Sequence[Record], asyncio.Future[int]]] = []
        self._subscribers: list[Subscriber] = []
        self._listeners: list[Callable[[], None]] = []
        self._next_offset = image.offset + 1

    @property
    def leader_id(self) -> int:
        return self.node_id if self.is_leader else -1

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def address_of_leader(self) -> tuple[str, int] | None:
        return None

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def subscribe_leadership(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def describe(self) -> QuorumDescription:
        raise NotImplementedError

    def write(self, records: Sequence[Record]) -> asyncio.Future[int]:
        if self.refusal is not None:
            raise self.refusal
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "somebody else leads")
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.written += records
        self._pending.append((records, committed))
        self._next_offset += len(records)
        if self.at_once:
            self.commit()
        return committed

    async def append(self, records: Sequence[Record]) -> int:
        return await self.write(records)

    async def settled(self) -> None:
        if self._pending:
            await asyncio.shield(self._pending[-1][1])

    @property
    def writes_pending(self) -> int:
        return len(self._pending)

    def commit_in_one_piece(self) -> None:
        """The same, and whoever listens hears of it once."""
        together = [record for records, _ in self._pending for record in records]
        answers = [committed for _, committed in self._pending]
        self._pending = [(together, asyncio.get_running_loop().create_future())]
        self.commit()
        for committed in answers:
            committed.set_result(self.image.offset)

    def commit(self) -> None:
        """Everything that was written is agreed on."""
        pending, self._pending = self._pending, []
        for records, committed in pending:
            offset = self.image.offset + len(records)
            self.image, delta = apply(self.image, records, offset=offset, epoch=self.epoch)
            for subscriber in self._subscribers:
                subscriber(self.image, delta)
            if not committed.done():
                committed.set_result(offset)

    def lead(self, leads: bool) -> None:
        """Leadership comes or goes, with a new epoch; what is not committed is cut off."""
        self.epoch += 1
        self.is_leader = leads
        self._pending = []
        self._next_offset = self.image.offset + 1
        for listener in self._listeners:
            listener()
