"""One followed partition, carried out: open its log, append what came, go back where the logs parted.

`core/replication/follower.py` decides; this does it. Each object stands for one leader epoch: when the metadata says
otherwise it is let go, and whatever it was about to do comes to nothing (`is_current`).

What an editor must keep true:
- After every wait `is_current` is asked again before the log is touched: the partition may have another leader, lead
  itself, or be gone.
- The order of a cut: lower offsets stored, log cut, cut synced, and only then is the partition fetched again. See
  `log/following.py`.
- A log that is corrupt is begun anew only while this replica is neither in sync nor eligible to lead: else the
  controller might choose an empty log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

import structlog

from ottla.core.replication.follower import FollowerState, OwnLog
from ottla.core.replication.replica_session import Asked
from ottla.model.errors import CorruptLogError
from ottla.wire.batch import HEADER_BYTES, read_header

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.log.partition_log import PartitionLog
    from ottla.log.segment import Segment
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.flushing import Flushes
    from ottla.runtime.log_directories import LogDirectories
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.world import World

log = structlog.get_logger("ottla.replication")

BATCHES_PER_SLICE: Final = 512
"""Appended before others have their turn; some 2 ms where batches are small."""
_NOTHING: Final = memoryview(b"")

PartitionKey: TypeAlias = tuple[UUID, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerContext:
    """What every fetcher of a broker works with."""

    world: World
    node_id: int
    table: PartitionTable
    directories: LogDirectories
    flushes: Flushes
    config: Callable[[], BrokerConfig]
    image: Callable[[], MetadataImage]
    broker_epoch: Callable[[], int]
    discard: Callable[[PartitionLog, Sequence[Segment]], None]
    """Removes the files of dropped segments later (`Maintenance.discard`)."""


class FollowedPartition:
    """A partition that is followed, in one leader epoch."""

    __slots__ = ("_context", "key", "partition", "released", "state")

    def __init__(self, partition: Partition, context: FollowerContext) -> None:
        self.key: PartitionKey = (partition.topic_id, partition.index)
        self.partition = partition
        self.state = FollowerState(partition.leader_epoch)
        self.released = False
        """Another object has taken over, or nobody follows any more."""
        self._context = context

    @property
    def is_current(self) -> bool:
        """Whether this partition is still to be followed in the epoch that this object stands for."""
        partition = self.partition
        return (
            not self.released
            and not partition.leads
            and not partition.gone
            and partition.leader_epoch == self.state.leader_epoch
        )

    @property
    def is_in_sync(self) -> bool:
        return self._context.node_id in self.partition.isr

    def own(self) -> OwnLog:
        """OttlaError if the log cannot be had."""
        opened = self.partition.log_or_none or self.partition.log
        return OwnLog(opened.log_start_offset, opened.log_end_offset, opened.epochs.latest)

    def asked(self) -> Asked:
        """What to ask the leader for."""
        opened = self.partition.log_or_none or self.partition.log
        return Asked(self.state.leader_epoch, opened.log_end_offset, opened.epochs.latest, opened.log_start_offset)

    async def open(self) -> None:
        """Have a log to append to. OttlaError if that cannot be."""
        try:
            opened = self.partition.log
        except CorruptLogError:
            if not self._may_renew():
                raise
            await self._context.directories.renew(self.partition)
            if not self.is_current:
                return
            opened = self.partition.log
        # An epoch that this broker was elected for, and in which it wrote nothing, is nobody's but its own.
        opened.epochs.truncate_from_end(opened.log_end_offset)

    def _may_renew(self) -> bool:
        topic = self._context.image().topics_by_id.get(self.partition.topic_id)
        if topic is None or self.partition.index >= len(topic.partitions):
            return False
        state, node_id = topic.partitions[self.partition.index], self._context.node_id
        return state.leader not in (-1, node_id) and node_id not in state.isr and node_id not in state.elr

    # -- what the leader sent

    def append(self, records: memoryview, now_ms: int) -> int:
        """Write some of what came; returns how many bytes of it. OttlaError."""
        opened = self.partition.log_or_none or self.partition.log
        return opened.append_as_follower(records, now_ms, BATCHES_PER_SLICE)

    def learn(self, leader_high_watermark: int, leader_log_start: int) -> None:
        """Note what is committed, and where the leader's log begins."""
        self.partition.append_as_follower(_NOTHING, leader_high_watermark, leader_log_start)

    async def append_rest(self, records: memoryview, now_ms: int) -> None:
        """Write the rest of what came, with a pause for others after each slice."""
        while len(records):
            await asyncio.sleep(0)
            if not self.is_current:
                return
            taken = self.append(records, now_ms)
            if not taken:
                return  # What is left is the beginning of a batch.
            records = records[taken:]

    async def begin_inside_of(self, records: memoryview, now_ms: int) -> None:
        """Take records whose first batch begins below the end of an empty log: the leader's log begins inside of it."""
        own, base_offset = self.own(), read_header(records).base_offset
        async with self._context.directories.checkpoints.lowered(self.partition, base_offset):
            if self.is_current and self.own() == own:
                opened = self.partition.log
                dropped = self.partition.restart_at(base_offset, now_ms, log_start_offset=own.start_offset)
                self._context.discard(opened, dropped)
                # At once: a log that ends before it starts is no log.
                self.append(records, now_ms)

    def begins_inside_of(self, records: memoryview) -> bool:
        own = self.own()
        return (
            own.last_epoch < 0
            and own.start_offset == own.end_offset
            and len(records) >= HEADER_BYTES
            and read_header(records).base_offset < own.end_offset
        )

    async def flush(self) -> None:
        """Return when what was appended is on the medium: where the topic asks for that, only then it counts."""
        await self._context.flushes.flush(self.partition)

    # -- going back

    async def truncate_to(self, offset: int) -> None:
        """Cut the log at `offset`; when this returns, a crash does not undo it."""
        context, partition = self._context, self.partition
        opened = partition.log
        producers = await context.world.offload.run(opened.producers_at, offset)
        async with context.directories.checkpoints.lowered(partition, offset):
            if not self._still_has(opened):
                return
            before, committed = opened.log_end_offset, partition.high_watermark
            dropped = partition.truncate_to(offset, context.world.clock.now_ms(), producers)
        self._report_cut(before, opened.log_end_offset, committed)
        context.directories.cleaner_checkpoint(opened.tp).truncate(opened.tp, opened.log_end_offset)
        context.discard(opened, dropped)
        await context.world.offload.run(opened.sync_truncation)

    async def restart_at(self, offset: int) -> None:
        """Forget the log and go on at `offset`, where the leader's begins."""
        context, partition = self._context, self.partition
        opened = partition.log
        async with context.directories.checkpoints.lowered(partition, offset, anew=True):
            if not self._still_has(opened):
                return
            before = opened.log_end_offset
            dropped = partition.restart_at(offset, context.world.clock.now_ms())
        log.info("begun anew at the leader's start", partition=str(opened.tp), offset=offset, ended_at=before)
        context.directories.cleaner_checkpoint(opened.tp).truncate(opened.tp, offset)
        context.discard(opened, dropped)
        await context.world.offload.run(opened.sync_truncation)

    def _still_has(self, opened: PartitionLog) -> bool:
        return self.is_current and self.partition.log_or_none is opened

    def _report_cut(self, before: int, after: int, committed: int) -> None:
        tp = str(self.partition.topic_partition)
        log.info("cut to what the leader has", partition=tp, ended_at=before, offset=after)
        if after < committed:
            log.warning(
                "committed records were cut: the leader was not in sync when it was elected",
                partition=tp,
                high_watermark=committed,
                offset=after,
            )
