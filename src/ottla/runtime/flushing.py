"""Syncs of partition logs, whoever asks: a producer that waits, a checkpoint, a round of compaction.

The sync runs in a thread; what was appended meanwhile waits for the next one.

What an editor must keep true:
- A failed sync is final: the log directory goes offline, because the pages that could not be written may be gone and a
  second sync would not say so. That no file could be opened, or that there is no room for a small one, is no such
  failure: nothing has changed then, and the next sync may do it.
- Whoever waits for a sync may be cancelled, and it may fail after that. That is noted all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ApiError, ErrorCode, StorageError

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
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
            self._begin(partition)

    def _begin(self, partition: Partition) -> asyncio.Future[None]:
        sync = self._running[partition] = _in_any_case(self._flush(partition))
        return sync

    async def _flush(self, partition: Partition) -> None:
        log = partition.log
        target = log.log_end_offset
        try:
            await self._sync(log, target)
        finally:
            del self._running[partition]
        partition.advance(target)

    async def sync(self, log: PartitionLog, target: int) -> None:
        """Return when everything below `target` is on the medium, and counts as such; or has been cut off.

        ApiError: the directory has failed, and is offline by now; or nothing has changed, and later it may work.
        """
        await asyncio.shield(_in_any_case(self._sync(log, target)))

    async def _sync(self, log: PartitionLog, target: int) -> None:
        truncations = log.truncations
        now_ms = self._world.clock.now_ms() if target == log.log_end_offset else None
        try:
            await self._world.offload.run(log.sync_until, target)
        except StorageError as error:
            self._on_failure(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.mark_flushed(target, now_ms, truncations=truncations)


def _in_any_case(sync: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
    """Run a sync to its end; nobody need wait for it."""
    task = asyncio.ensure_future(sync)
    # Whoever is to hear of a failure has heard of it by `on_failure`.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
