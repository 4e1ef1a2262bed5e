"""What a broker does without being asked: retention, flushes by time, checkpoints, expiry of producers.

Each chore is a loop of its own: wait, then look at the partitions a few at a time, so that ten thousand of them never
hold up the loop. A chore that fails on one partition goes on with the next. Compaction, which is more work, has its
own file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from ottla.model.configs.resolve import LONG_MAX
from ottla.model.errors import ApiError, ErrorCode, OttlaError, StorageError

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.log.segment import Segment
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.flushing import Flushes
    from ottla.runtime.log_directories import LogDirectories
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.world import World

log = structlog.get_logger("ottla.maintenance")

PARTITIONS_PER_TURN = 8
STARTS_PER_WRITE = 1_000
"""Of logs whose records were deleted: to collect more of them takes too long for one turn of the loop."""
ROOM_CHECK_MS = 1_000
"""A log that has not grown for so long ends with its last batch on disk, too."""
FLUSH_CHECK_MS_MAX = 1_000
"""`flush.ms` is honoured to within this, whatever log.flush.scheduler.interval.ms says."""


class Maintenance:
    """The chores of one broker."""

    __slots__ = ("_config", "_directories", "_table", "_tasks", "_world", "flushes")

    def __init__(
        self,
        world: World,
        table: PartitionTable,
        directories: LogDirectories,
        flushes: Flushes,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._world = world
        self._table = table
        self._directories = directories
        self.flushes = flushes
        self._config = config
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        self._every(lambda config: config.log_retention_check_interval_ms, self.apply_retention)
        self._every(lambda config: config.log_flush_offset_checkpoint_interval_ms, self.checkpoint)
        self._every(lambda config: min(config.log_flush_scheduler_interval_ms, FLUSH_CHECK_MS_MAX), self.flush_overdue)
        self._every(lambda config: config.replica_high_watermark_checkpoint_interval_ms, self.store_high_watermarks)
        self._every(lambda config: ROOM_CHECK_MS, self.give_back_room)
        self._every(lambda config: config.producer_id_expiration_check_interval_ms, self.expire_producers)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the chores; it ends with them."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _every(self, interval_ms: Callable[[BrokerConfig], int], chore: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms(self._config()) / 1000)
                await self._carefully(chore)

        self.spawn(repeat())

    @staticmethod
    async def _carefully(chore: Callable[[], Awaitable[None]]) -> None:
        try:
            await chore()
        except (OttlaError, OSError) as error:
            log.error("a chore failed", chore=getattr(chore, "__name__", str(chore)), reason=str(error))

    # -- retention

    async def apply_retention(self) -> None:
        """Drop what is too old or too much."""
        now_ms = self._world.clock.now_ms()
        starts: dict[Partition, int] = {}
        async for partition in self._in_turns():
            try:
                start_offset = partition.log.start_after_retention(now_ms, partition.high_watermark)
            except StorageError as error:
                self._table.directory_failed(error)
            except OttlaError as error:
                log.error("retention failed", partition=str(partition.topic_partition), reason=str(error))
            else:
                if start_offset is not None:
                    starts[partition] = start_offset
        failed = await self._directories.checkpoints.raise_starts(starts, self._begin_at)
        for partition, reason in list(failed.items())[:1]:
            tp = str(partition.topic_partition)
            log.error("log starts not stored", first=tp, partitions=len(failed), reason=str(reason))

    def _begin_at(self, partition: Partition, offset: int) -> None:
        """Let a log begin at an offset that is stored, and its older files go."""
        opened = partition.log
        before = opened.log_start_offset
        try:
            dropped = opened.delete_records_before(offset)
            self.discard(opened, dropped)
        except StorageError as error:
            self._table.directory_failed(error)
            return
        if dropped or opened.log_start_offset > before:
            log.info("records deleted", partition=str(opened.tp), log_start_offset=opened.log_start_offset)
        partition.committed()

    def checked_start(self, partition: Partition, offset: int) -> int:
        """Where a partition begins when the records before `offset` are gone; ApiError if that cannot be."""
        if offset < 0 or offset > partition.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.topic_partition} is readable up to {partition.high_watermark}",
            )
        return max(offset, partition.log.log_start_offset)

    async def raise_starts(self, starts: Mapping[Partition, int]) -> dict[Partition, OttlaError]:
        """Let partitions begin there, and return when that is on disk; says of which it is not, and why."""
        failed: dict[Partition, OttlaError] = {}
        every = list(starts.items())
        for first in range(0, len(every), STARTS_PER_WRITE):
            some = dict(every[first : first + STARTS_PER_WRITE])
            failed |= await self._directories.checkpoints.raise_starts(some, self._begin_at)
        async for partition in self._in_turns([each for each in starts if each not in failed]):
            partition.changed()
            partition.grown()
        return failed

    def discard(self, opened: PartitionLog, segments: Sequence[Segment]) -> None:
        """Remove the files of dropped segments after `file.delete.delay.ms`; a restart before that removes them too."""
        if segments:
            self.spawn(self._discard_later(opened, segments))

    async def _discard_later(self, opened: PartitionLog, segments: Sequence[Segment]) -> None:
        await asyncio.sleep(opened.config.file_delete_delay_ms / 1000)
        try:
            await self._world.offload.run(opened.delete_files, segments)
        except (OttlaError, OSError) as error:
            log.error("files could not be removed", partition=str(opened.tp), reason=str(error))

    # -- flushing and checkpoints

    async def flush_overdue(self) -> None:
        """Sync the logs whose `flush.ms` has passed."""
        now_ms = self._world.clock.now_ms()
        for topic in self._table.topics:
            if topic.config.flush_ms >= LONG_MAX:
                continue
            for partition in topic.partitions:
                opened = None if partition is None else partition.log_or_none
                if partition is not None and opened is not None and opened.flush_ms_due(now_ms):
                    await self._carefully(partial(self.flushes.flush, partition))

    async def give_back_room(self) -> None:
        """Let the files of logs that rest be as long as their logs."""
        self._directories.files.rooms.give_back()

    async def checkpoint(self) -> None:
        """Sync sealed segments, so that recovery after a crash has little to read, and store how far it got."""
        async for partition in self._in_turns(opened_only=True):
            opened = partition.log_or_none
            if opened is None:
                continue
            target = opened.flush_target(sealed_only=True)
            if target > opened.recovery_point:
                await self._carefully(partial(self.flushes.sync, opened, target))
        await self._directories.checkpoint(self._table)

    async def store_high_watermarks(self) -> None:
        """Store what is committed of each replicated partition, so that it is known after a restart."""
        await self._directories.checkpoints.store_replicated_high_watermarks(self._table)

    async def expire_producers(self) -> None:
        """Forget idempotent producers that have been silent for long."""
        now_ms, expiration_ms = self._world.clock.now_ms(), self._config().producer_id_expiration_ms
        async for partition in self._in_turns(opened_only=True):
            if partition.log_or_none is not None:
                partition.log_or_none.producers.expire(now_ms, expiration_ms)

    async def _in_turns(
        self, partitions: Iterable[Partition] | None = None, *, opened_only: bool = False
    ) -> AsyncIterator[Partition]:
        """Every partition, or these, with a pause for others after each few."""
        for number, partition in enumerate(list(self._table if partitions is None else partitions)):
            if opened_only and partition.log_or_none is None:
                continue
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not partition.gone:
                yield partition
