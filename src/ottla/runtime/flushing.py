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
        """Return when everything that the log holds now is on the medium, and counts as such; or has been cut off."""
        wanted = partition.log.log_end_offset
        while partition.log.recovery_point < min(wanted, partition.log.log_end_offset) or (
            partition.is_sole and partition.high_watermark < wanted
        ):
            await asyncio.shield(self._running.get(partition) or self._begin(partition))

    def begin(self, partition: Partition) -> None:
        """Sync what the log holds now; nobody waits for it here."""
        if partition not in self._running:
            # Whoever is to hear of a failure has heard of it by `on_failure`.
            self._begin(partition).add_done_callback(lambda sync: sync.cancelled() or sync.exception())

    def _begin(self, partition: Partition) -> asyncio.Future[None]:
        sync = self._running[partition] = asyncio.ensure_future(self._sync(partition))
        return sync

    async def _sync(self, partition: Partition) -> None:
        log = partition.log
        target, truncations = log.log_end_offset, log.truncations
        try:
            await self._world.offload.run(log.sync_until, target)
        except StorageError as error:
            self._on_failure(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            del self._running[partition]
        log.mark_flushed(target, self._world.clock.now_ms(), truncations=truncations)
        partition.advance(target)
