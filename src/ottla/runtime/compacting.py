"""Compaction of compacted topics: picks the dirtiest log, and carries out a round for it.

One log at a time. A round that fails leaves its log as it was, or with some segments done, and the partition rests
for a while so that another one gets its turn. What a round is made of is in `log/compaction.py` and
`compaction_round.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from ottla.log.compaction import CompactionResult, Dirtiness
from ottla.log.compaction_plan import dirtiness_of, plan_round
from ottla.model.errors import CorruptLogError, OttlaError, StorageError
from ottla.runtime.compaction_round import compact_log

if TYPE_CHECKING:
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.compaction_round import CompactionWork
    from ottla.runtime.log_directories import LogDirectories
    from ottla.runtime.maintenance import Maintenance
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.world import World

log = structlog.get_logger("ottla.compaction")

PARTITIONS_PER_TURN: Final = 8
REST_MS_AFTER_FAILURE: Final = 60_000
IO_BYTES_PER_SECOND_UNLIMITED: Final = 1e300


class _Candidate(NamedTuple):
    partition: Partition
    dirtiness: Dirtiness

    @property
    def urgency(self) -> tuple[bool, float]:
        return self.dirtiness.overdue_ms > 0, self.dirtiness.ratio


class Compactor:
    """Compacts, one log after the other, for as long as it runs."""

    __slots__ = ("_config", "_directories", "_maintenance", "_resting", "_table", "_worker", "_world", "rounds")

    def __init__(
        self,
        world: World,
        table: PartitionTable,
        directories: LogDirectories,
        maintenance: Maintenance,
        worker: CompactionWork,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._world = world
        self._table = table
        self._directories = directories
        self._maintenance = maintenance
        self._worker = worker
        self._config = config
        self._resting: dict[Partition, int] = {}
        """Until when a partition whose round failed is left alone."""
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
        partition = candidate.partition
        try:
            await self._compact(candidate)
        except StorageError as error:
            self._table.directory_failed(error)
        except (OttlaError, OSError) as error:
            if partition.gone:
                return True  # It was deleted meanwhile.
            if isinstance(error, CorruptLogError):
                self._directories.set_corrupt(partition, str(error))
            self._resting[partition] = self._world.clock.now_ms() + REST_MS_AFTER_FAILURE
            log.error("compaction failed", partition=str(partition.topic_partition), reason=str(error))
        return True

    async def _dirtiest(self) -> _Candidate | None:
        now_ms = self._world.clock.now_ms()
        self._resting = {partition: until for partition, until in self._resting.items() if until > now_ms}
        due: list[_Candidate] = []
        looked = 0
        for topic in self._table.topics:
            for partition in topic.partitions if topic.config.cleanup_compact else ():
                if looked % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
                looked += 1
                if partition is None or partition.gone or partition in self._resting:
                    continue
                try:
                    dirtiness = self._measure(partition, now_ms)
                except OttlaError:
                    continue  # Offline; whoever reads or writes it is told why.
                if dirtiness.is_due(topic.config):
                    due.append(_Candidate(partition, dirtiness))
        return max(due, key=lambda candidate: candidate.urgency, default=None)

    def _measure(self, partition: Partition, now_ms: int) -> Dirtiness:
        opened = partition.log
        if opened.active.size and opened.roll_due(now_ms):
            opened.roll(now_ms)
        return dirtiness_of(
            opened,
            checkpoint=self._directories.cleaner_checkpoint(partition.topic_partition).get(partition.topic_partition),
            last_stable_offset=partition.last_stable_offset,
            now_ms=now_ms,
        )

    async def _compact(self, candidate: _Candidate) -> None:
        partition, world = candidate.partition, self._world
        opened, config = partition.log, self._config()
        bytes_per_second = float(str(config.get("log.cleaner.io.max.bytes.per.second")))
        job = plan_round(
            opened,
            world.disk,
            candidate.dirtiness,
            now_ms=world.clock.now_ms(),
            seed=world.rng.getrandbits(63),
            map_bytes_max=int(str(config.get("log.cleaner.dedupe.buffer.size"))),
            io_bytes_per_second_max=0.0 if bytes_per_second > IO_BYTES_PER_SECOND_UNLIMITED else bytes_per_second,
        )
        result = await compact_log(
            opened,
            job,
            self._worker,
            disk=world.disk,
            offload=world.offload,
            sync=self._maintenance.flushes.sync,
            discard=partial(self._maintenance.discard, opened),
        )
        if not partition.gone:
            checkpoint = self._directories.cleaner_checkpoint(partition.topic_partition)
            checkpoint.advance(partition.topic_partition, result.first_dirty_offset)
            await self._directories.checkpoint([partition])
        self.rounds += 1
        _report(partition, result)


def _report(partition: Partition, result: CompactionResult) -> None:
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
