"""What is committed becomes the image: apply, tell the subscribers, answer the writers; in this order.

Batches wait here from when they stand in the log until the high watermark passes them. Who wrote one on this node waits
for it, as long as the node leads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ottla.core.controller.builder import ImageBuilder
from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.controller.image_difference import difference
from ottla.core.controller.transaction import MetadataTransaction
from ottla.runtime.quorum_records import LoggedBatch

Subscriber: TypeAlias = Callable[[MetadataImage, ImageDelta], None]


class _Waiter(NamedTuple):
    last_offset: int
    committed: asyncio.Future[int]


class Commits:
    """The log's tail, the image before it, and who waits."""

    __slots__ = ("_batches", "_subscribers", "_transaction", "_waiters", "bytes_committed", "image")

    def __init__(self, image: MetadataImage, batches: Sequence[LoggedBatch] = ()) -> None:
        self.image = image
        self._batches = deque(batches)
        self._transaction = MetadataTransaction()
        self._waiters: deque[_Waiter] = deque()
        self._subscribers: list[Subscriber] = []
        self.bytes_committed = 0
        """Of the log; whoever takes snapshots sets it back."""

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def take_subscribers(self, before: Commits) -> None:
        """Those of whoever stood here before the log was read."""
        self._subscribers = before._subscribers

    @property
    def is_in_transaction(self) -> bool:
        """Whether the image lacks records that are committed, and that nobody knows yet whether they count."""
        return self._transaction.is_open

    def add(self, batch: LoggedBatch) -> None:
        """It stands in the log."""
        self._batches.append(batch)

    def wait_for(self, last_offset: int) -> asyncio.Future[int]:
        """Done when a batch is committed, with its last offset."""
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.append(_Waiter(last_offset, committed))
        return committed

    @property
    def last_waiter(self) -> asyncio.Future[int] | None:
        return self._waiters[-1].committed if self._waiters else None

    def truncate(self, end_offset: int) -> None:
        while self._batches and self._batches[-1].last_offset >= end_offset:
            self._batches.pop()

    def advance(self, high_watermark: int) -> None:
        """Take in what is below the high watermark. Until all are told the writers wait on, for `fail` to find."""
        if self._batches and self._batches[0].last_offset < high_watermark:
            self._apply(high_watermark)
        while self._waiters and self._waiters[0].last_offset < high_watermark:
            waiter = self._waiters.popleft()
            if not waiter.committed.done():
                waiter.committed.set_result(waiter.last_offset)

    def _apply(self, high_watermark: int) -> None:
        builder = ImageBuilder(self.image)
        size = 0
        while self._batches and self._batches[0].last_offset < high_watermark:
            last = self._batches.popleft()
            size += last.size
            for record in self._transaction.effective(last.records):
                builder.apply(record)
        self.image, delta = builder.build(offset=last.last_offset, epoch=last.epoch)
        self.bytes_committed += size
        self._tell(delta)

    def restart(self, image: MetadataImage) -> None:
        """A snapshot of the leader takes the place of everything."""
        delta = difference(self.image, image)
        self._batches.clear()
        self._transaction = MetadataTransaction()
        self.image = image
        self._tell(delta)

    def _tell(self, delta: ImageDelta) -> None:
        for subscriber in self._subscribers:
            subscriber(self.image, delta)

    def fail(self, error: Exception) -> None:
        """Nobody's write will be known to be committed here."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.committed.done():
                _fail(waiter.committed, error)


def failed_commit(error: Exception) -> asyncio.Future[int]:
    """For whoever waits for a batch that could not be written."""
    committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    _fail(committed, error)
    return committed


def _fail(committed: asyncio.Future[int], error: Exception) -> None:
    committed.set_exception(error)
    committed.exception()  # Not every write is awaited; whoever failed says so elsewhere.
