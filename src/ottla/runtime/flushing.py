"""Syncs of partition logs, each of which covers everything that waits for it.

The sync runs in a thread; what was appended meanwhile waits for the next one. A failed sync is final: the log directory
goes offline, because the pages that could not be written may be gone and a second sync would not say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.model.errors import ApiError, ErrorCode, StorageError

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition
    from ottla.runtime.world import World


class Sync:
    """A sync that is under way, and who waits for it. One who stops waiting does not end it."""

    __slots__ = ("task", "waiters")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        await waiter

    def tell(self, error: Exception | None) -> None:
        """It is over."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            elif isinstance(error, ApiError):
                waiter.set_exception(ApiError(error.code, error.message))  # Each raises an error of its own.
            else:
                waiter.set_exception(error)

    def cancel(self) -> None:
        for waiter in self.waiters:
            waiter.cancel()


class Flushes:
    """At most one sync at a time per partition."""

    __slots__ = ("_on_failure", "_running", "_world")

    def __init__(self, world: World, on_failure: Callable[[StorageError], None]) -> None:
        self._world = world
        self._on_failure = on_failure
        self._running: dict[Partition, Sync] = {}

    async def flush(self, partition: Partition) -> None:
        """Return when everything that the log holds now is on the medium, and counts as such; or has been cut off."""
        wanted = partition.log.log_end_offset
        while partition.log.recovery_point < min(wanted, partition.log.log_end_offset) or (
            partition.is_sole and partition.high_watermark < wanted
        ):
            await (self._running.get(partition) or self._begin(partition)).wait()

    def begin(self, partition: Partition) -> None:
        """Sync what the log holds now; nobody waits for it here."""
        if partition not in self._running:
            self._begin(partition)

    def _begin(self, partition: Partition) -> Sync:
        sync = self._running[partition] = Sync()
        sync.task = asyncio.ensure_future(self._carry_out(partition, sync))
        return sync

    async def _carry_out(self, partition: Partition, sync: Sync) -> None:
        try:
            await self._sync(partition)
        except ApiError as error:
            sync.tell(error)  # Where nobody waits: whoever is to hear of a failure has heard of it by `on_failure`.
        except Exception as error:
            if not sync.waiters:
                raise
            sync.tell(error)
        except BaseException:
            sync.cancel()
            raise
        else:
            sync.tell(None)

    async def _sync(self, partition: Partition) -> None:
        try:
            log = partition.log
            target, truncations = log.log_end_offset, log.truncations
            await self._world.offload.run(log.sync_until, target)
        except StorageError as error:
            self._on_failure(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            del self._running[partition]
        log.mark_flushed(target, self._world.clock.now_ms(), truncations=truncations)
        partition.advance(target)
