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


class Flushes:
    """At most one sync at a time per partition."""

    __slots__ = ("_on_failure", "_running", "_world")

    def __init__(self, world: World, on_failure: Callable[[StorageError], None]) -> None:
        self._world = world
        self._on_failure = on_failure
        self._running: dict[Partition, asyncio.Future[None]] = {}

    async def flush(self, partition: Partition) -> None:
        """Return when everything that the log holds now is on the medium, and readable."""
        wanted = partition.log.log_end_offset
        while partition.high_watermark < wanted or partition.log.recovery_point < wanted:
            running = self._running.get(partition)
            if running is None:
                running = self._running[partition] = asyncio.ensure_future(self._sync(partition))
            await asyncio.shield(running)

    async def _sync(self, partition: Partition) -> None:
        log = partition.log
        target = log.log_end_offset
        try:
            await self._world.offload.run(log.sync_until, target)
        except StorageError as error:
            self._on_failure(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            del self._running[partition]
        log.mark_flushed(target, self._world.clock.now_ms())
        partition.advance(target)
