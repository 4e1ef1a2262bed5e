"""The metadata log: what is in it is what the cluster has agreed on.

Theory of operation. `write` puts a batch of records at the end of the log and hands back a future. A single task syncs
the log in a thread and then commits everything that was written before the sync began, so that commands which arrive
while the disk is busy share the next sync. Committing applies the records to `image`, tells the subscribers, and only
then resolves the futures: who is answered "created" finds the topic on this broker.

A single voter is its own majority: what is on its disk is committed. At each start it begins a new epoch, which is on
disk before the first record of it. After a crash it keeps every whole batch it finds, whether it was answered or not,
and cuts off a torn one at the end, which cannot have been answered. `synced_offset` in the quorum-state file is the
border: damage below it is corruption, and the node does not start.

When the log has grown, a snapshot of the image takes the place of its beginning. It is on disk, under its name, before
any segment goes. A node starts with the newest snapshot and the records after it.

What an editor must keep true: nothing is answered or applied before it is synced, and a failed sync is final, because
the pages may be gone and the next sync would lie. After a failure every waiter and every later writer gets the error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import structlog

from ottla.core.controller.brokers import BOOTSTRAP_RECORDS
from ottla.core.controller.builder import ImageBuilder
from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.controller.records import Record
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, OttlaError, StorageError
from ottla.runtime.metadata_codec import LEADER_CHANGE, build_batch, build_control_batch, leader_change
from ottla.runtime.metadata_log import METADATA_PARTITION, MetadataLog, load_metadata_log
from ottla.runtime.metadata_snapshot import remove_older_snapshots, write_snapshot
from ottla.runtime.quorum_state import FILE_NAME, QuorumState, write_quorum_state
from ottla.runtime.world import World
from ottla.wire.batch import read_header

Subscriber: TypeAlias = Callable[[MetadataImage, ImageDelta], None]

log: Final = structlog.get_logger()


class QuorumReplica(NamedTuple):
    """How far one node is with the metadata log."""

    replica_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """What DescribeQuorum answers."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class MetadataQuorum(Protocol):
    """The metadata log as the rest of a broker sees it."""

    @property
    def image(self) -> MetadataImage:
        """What is committed."""

    @property
    def next_offset(self) -> int:
        """Where the next record that is written will stand."""

    def write(self, records: Sequence[Record]) -> Awaitable[int]:
        """Begin to append records as one batch, and wait for their commit, which gives the offset of the last one.

        The write itself happens at once. An error that it raises means that nothing was written.
        """

    async def append(self, records: Sequence[Record]) -> int:
        """`write`, and wait."""

    async def settled(self) -> None:
        """Return when everything written up to now is committed."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call this on the loop after each commit, with the image and what changed in it."""

    def describe(self) -> QuorumDescription: ...


class _Written(NamedTuple):
    """A batch on its way to be committed."""

    last_offset: int
    size: int
    records: Sequence[Record]
    committed: asyncio.Future[int]


class SingleVoter:
    """A quorum of one: the log in this process is the cluster's."""

    __slots__ = (
        "_bytes_since_snapshot",
        "_cluster_id",
        "_committer",
        "_config",
        "_directory_id",
        "_failure",
        "_files",
        "_log",
        "_on_failure",
        "_snapshot_ms",
        "_snapshotter",
        "_subscribers",
        "_world",
        "_written",
        "directory",
        "epoch",
        "image",
        "node_id",
    )

    def __init__(
        self,
        world: World,
        files: OpenFiles,
        config: BrokerConfig,
        *,
        cluster_id: str,
        directory_id: UUID,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._world = world
        self._files = files
        self._config = config
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._on_failure = on_failure
        self._log: PartitionLog | None = None
        self._failure: Exception | None = None
        self._subscribers: list[Subscriber] = []
        self._written: deque[_Written] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._snapshotter: asyncio.Task[None] | None = None
        self._bytes_since_snapshot = 0
        self._snapshot_ms = 0
        self.directory = f"{config.metadata_log_dir}/{METADATA_PARTITION}"
        self.node_id = config.node_id
        self.image = MetadataImage(cluster_id=cluster_id)
        self.epoch = 0

    async def start(self) -> None:
        """Bring back the metadata, begin a new epoch, and, in a new cluster, write what a log begins with."""
        now_ms = self._world.clock.now_ms()
        loaded: MetadataLog = await self._world.offload.run(
            load_metadata_log, self._world.disk, self._files, self.directory, self._config, self._cluster_id, now_ms
        )
        self._log = loaded.log
        self.image = loaded.image
        self._bytes_since_snapshot = loaded.bytes_since_snapshot
        self._snapshot_ms = now_ms
        self.epoch = loaded.epoch + 1
        await self._store_state()
        self._write_leader_change()
        if loaded.is_new:
            await self.write(BOOTSTRAP_RECORDS)
        await self.settled()

    async def close(self) -> None:
        """Wait for what is under way and put the log down. The next start needs no repair."""
        while tasks := [task for task in (self._snapshotter, self._committer) if task is not None]:
            await asyncio.wait(tasks)
        if self._log is not None and self._failure is None:
            await self._store_state()
            await self._world.offload.run(self._log.close)
        self._failure = self._failure or StorageError(self.directory, "the metadata log is closed")

    @property
    def _open_log(self) -> PartitionLog:
        if self._log is None:
            raise StorageError(self.directory, "the metadata log is not open yet")
        return self._log

    @property
    def next_offset(self) -> int:
        return self._open_log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.image.offset + 1

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def describe(self) -> QuorumDescription:
        now_ms = self._world.clock.now_ms()
        self_state = QuorumReplica(self.node_id, self._directory_id, self.next_offset, now_ms, now_ms)
        return QuorumDescription(
            leader_id=self.node_id,
            leader_epoch=self.epoch,
            high_watermark=self.high_watermark,
            voters=(self_state,),
            observers=(),
        )

    async def append(self, records: Sequence[Record]) -> int:
        return await self.write(records)

    def write(self, records: Sequence[Record]) -> asyncio.Future[int]:
        now_ms = self._world.clock.now_ms()
        batch = build_batch(records, base_offset=self.next_offset, leader_epoch=self.epoch, now_ms=now_ms)
        # Whoever stops waiting must not take the commit away from others that wait for it.
        return asyncio.shield(self._write_batch(batch, records, now_ms))

    def _write_leader_change(self) -> asyncio.Future[int]:
        now_ms = self._world.clock.now_ms()
        batch = build_control_batch(
            LEADER_CHANGE,
            leader_change(self.node_id, [self.node_id]),
            base_offset=self.next_offset,
            leader_epoch=self.epoch,
            now_ms=now_ms,
        )
        return self._write_batch(batch, (), now_ms)

    def _write_batch(self, batch: bytearray, records: Sequence[Record], now_ms: int) -> asyncio.Future[int]:
        if self._failure is not None:
            raise self._failure
        view = memoryview(batch)
        try:
            appended = self._open_log.append(view, read_header(view), self.epoch, now_ms)
        except ApiError:
            # No space: the log is as it was before, and the caller may try again.
            raise
        except OttlaError as error:
            self._fail(error)
            raise
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._written.append(_Written(appended.last_offset, len(batch), records, committed))
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_written())
        return committed

    async def settled(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._written:
            await asyncio.shield(self._written[-1].committed)

    async def _commit_written(self) -> None:
        """Sync and commit until nothing is left; what arrives during a sync is part of the next one."""
        try:
            while self._written:
                target = self._open_log.log_end_offset
                await self._world.offload.run(self._open_log.sync_until, target)
                self._open_log.mark_flushed(target)
                self._commit(target)
        except Exception as error:
            # The disk failed, or a subscriber did and this broker no longer follows the metadata. Either way: stop.
            self._fail(error)
        finally:
            self._committer = None

    def _commit(self, end_offset: int) -> None:
        """Apply, tell, answer; in this order. Until all are told the batches stay in the queue, for `_fail` to find."""
        committed = list(takewhile(lambda written: written.last_offset < end_offset, self._written))
        builder = ImageBuilder(self.image)
        for written in committed:
            for record in written.records:
                builder.apply(record)
        self.image, delta = builder.build(offset=committed[-1].last_offset, epoch=self.epoch)
        for subscriber in self._subscribers:
            subscriber(self.image, delta)
        for written in committed:
            self._written.popleft()
            self._bytes_since_snapshot += written.size
            if not written.committed.done():
                written.committed.set_result(written.last_offset)
        self._snapshot_if_due()

    def _fail(self, error: Exception) -> None:
        """Nothing can be agreed on any more. Tell everybody who waits, and whoever must stop the node."""
        if self._failure is not None:
            return
        self._failure = error
        log.error("metadata log failed", directory=self.directory, error=str(error))
        while self._written:
            written = self._written.popleft()
            if not written.committed.done():
                written.committed.set_exception(error)
                # Not every write is awaited; the failure is reported all the same, below.
                written.committed.exception()
        self._on_failure(error)

    async def _store_state(self) -> None:
        state = QuorumState(
            leader_id=self.node_id,
            leader_epoch=self.epoch,
            voters=(self.node_id,),
            synced_offset=self._open_log.recovery_point,
        )
        path = f"{self.directory}/{FILE_NAME}"
        await self._world.offload.run(write_quorum_state, self._world.disk, path, state)

    def _snapshot_if_due(self) -> None:
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        now_ms = self._world.clock.now_ms()
        large = self._bytes_since_snapshot >= self._config.metadata_log_max_record_bytes_between_snapshots
        old = 0 < interval_ms <= now_ms - self._snapshot_ms
        if (large or old) and self._snapshotter is None:
            self._bytes_since_snapshot = 0
            self._snapshot_ms = now_ms
            # A segment goes when the snapshot reaches its end, so that one ends here.
            self._open_log.roll(now_ms)
            self._snapshotter = asyncio.create_task(self._take_snapshot(self.image, now_ms))

    async def _take_snapshot(self, image: MetadataImage, now_ms: int) -> None:
        """Write a snapshot, and let go of what it has made superfluous. A failure costs space, nothing else."""
        run, disk = self._world.offload.run, self._world.disk
        try:
            snapshot = await run(write_snapshot, disk, self.directory, image, now_ms)
            await self._store_state()
            removed = self._open_log.delete_records_before(snapshot.end_offset)
            await run(self._open_log.delete_files, removed)
            await run(remove_older_snapshots, disk, self.directory, snapshot)
        except (OSError, OttlaError) as error:
            log.error("snapshot of the metadata failed", directory=self.directory, error=str(error))
        finally:
            self._snapshotter = None
