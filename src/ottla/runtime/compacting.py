"""Compaction of compacted topics: picks the dirtiest log, has the record worker clean it, and puts the result in place.

One log at a time. The worker writes new segments beside the old ones; each group of them is committed in a thread and swapped
in on the loop as soon as it is complete. Whatever fails leaves the log as it was or with some groups done, and the next round
begins where this one got to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import structlog

from ottla.log import replacement
from ottla.log.compaction import (
    CleanedGroup,
    CompactionJob,
    Dirtiness,
    ProducerTail,
    SegmentSource,
    measure_dirtiness,
)
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.log_directories import LogDirectories
    from ottla.runtime.maintenance import Maintenance
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.record_worker import RecordWorker
    from ottla.runtime.world import World

log = structlog.get_logger("ottla.compaction")


class _Candidate(NamedTuple):
    partition: Partition
    dirtiness: Dirtiness


class Compactor:
    """Compacts, one log after the other, for as long as it runs."""

    __slots__ = ("_config", "_directories", "_maintenance", "_table", "_worker", "_world", "rounds")

    def __init__(
        self,
        world: World,
        table: PartitionTable,
        directories: LogDirectories,
        maintenance: Maintenance,
        worker: RecordWorker,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._world = world
        self._table = table
        self._directories = directories
        self._maintenance = maintenance
        self._worker = worker
        self._config = config
        self.rounds = 0

    def start(self) -> None:
        self._maintenance.spawn(self._run())

    async def _run(self) -> None:
        while True:
            found = self._config().log_cleaner_enable and await self.compact_dirtiest()
            if not found:
                await asyncio.sleep(self._config().log_cleaner_backoff_ms / 1000)

    async def compact_dirtiest(self) -> bool:
        """Clean the log that needs it most; False if none does."""
        candidate = await self._dirtiest()
        if candidate is None:
            return False
        try:
            await self._compact(candidate)
        except (OttlaError, OSError) as error:
            log.error("compaction failed", partition=str(candidate.partition.topic_partition), reason=str(error))
            return False
        return True

    async def _dirtiest(self) -> _Candidate | None:
        now_ms = self._world.clock.now_ms()
        due: list[_Candidate] = []
        for topic in self._table.topics:
            if not topic.config.cleanup_compact:
                continue
            for partition in topic.partitions:
                await asyncio.sleep(0)
                if partition is None or partition.gone:
                    continue
                try:
                    dirtiness = self._measure(partition, now_ms)
                except OttlaError:
                    continue  # Offline; whoever reads or writes it is told why.
                if dirtiness.is_due(topic.config):
                    due.append(_Candidate(partition, dirtiness))
        return max(due, key=lambda item: (item.dirtiness.overdue_ms > 0, item.dirtiness.ratio), default=None)

    def _measure(self, partition: Partition, now_ms: int) -> Dirtiness:
        opened = partition.log
        if opened.active.size and opened.roll_due(now_ms):
            opened.roll(now_ms)
        return measure_dirtiness(
            opened.segments,
            opened.config,
            checkpoint=self._directories.cleaner_checkpoint(partition.topic_partition).get(partition.topic_partition),
            log_start_offset=opened.log_start_offset,
            log_end_offset=opened.log_end_offset,
            last_stable_offset=partition.last_stable_offset,
            now_ms=now_ms,
        )

    async def _compact(self, candidate: _Candidate) -> None:
        partition = candidate.partition
        job = self._job(partition, candidate.dirtiness)
        groups: asyncio.Queue[CleanedGroup | None] = asyncio.Queue()
        installer = asyncio.ensure_future(self._install_all(partition, groups))
        try:
            result = await self._worker.compact(job, groups.put_nowait)
        finally:
            groups.put_nowait(None)
            await installer
        await self._checkpoint(partition, result.first_dirty_offset)
        self.rounds += 1
        log.info(
            "compacted",
            partition=str(partition.topic_partition),
            bytes_before=result.bytes_read,
            bytes_after=result.bytes_written,
            records_before=result.records_read,
            records_after=result.records_kept,
        )
        for fault in result.faults:
            log.warning(
                "a batch was kept as it is, its records are not what its header says",
                partition=str(partition.topic_partition),
                offset=fault.base_offset,
                reason=fault.reason,
            )

    def _job(self, partition: Partition, dirtiness: Dirtiness) -> CompactionJob:
        opened = partition.log
        config = opened.config
        return CompactionJob(
            directory=opened.directory,
            segments=[
                SegmentSource(segment.base_offset, segment.size)
                for segment in opened.segments
                if segment.base_offset < dirtiness.first_uncleanable_offset
            ],
            first_dirty_offset=dirtiness.first_dirty_offset,
            first_uncleanable_offset=dirtiness.first_uncleanable_offset,
            now_ms=self._world.clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            producers=[
                ProducerTail(
                    producer.producer_id, producer.epoch, producer.batches[-1].last_offset if producer.batches else -1
                )
                for producer in opened.producers.active_producers()
            ],
            seed=self._world.rng.getrandbits(63),
        )

    async def _install_all(self, partition: Partition, groups: asyncio.Queue[CleanedGroup | None]) -> None:
        while (group := await groups.get()) is not None:
            if group.is_changed and not partition.gone:
                await self._install(partition, group)

    async def _install(self, partition: Partition, group: CleanedGroup) -> None:
        """Put one new segment into the place of the old ones it stands for."""
        opened = partition.log
        disk = self._world.disk
        swapped = await self._world.offload.run(replacement.commit, disk, opened.directory, [group.base_offset])
        old = [segment for segment in opened.segments if segment.base_offset in group.sources]
        self._maintenance.discard(opened, opened.replace_segments(old, swapped))

    async def _checkpoint(self, partition: Partition, first_dirty_offset: int) -> None:
        if not partition.gone:
            checkpoint = self._directories.cleaner_checkpoint(partition.topic_partition)
            checkpoint.advance(partition.topic_partition, first_dirty_offset)
            await self._world.offload.run(checkpoint.write)
