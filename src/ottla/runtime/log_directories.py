"""The broker's log directories: where each partition lies, and what happens to those of a directory that fails.

Theory of operation. A partition is found where it was, or placed in the online directory with the fewest partitions.
After a clean stop logs are opened at first touch. After an unclean one every log is opened, and thereby repaired,
before the broker serves (`recover`). A directory that fails goes offline alone: its partitions answer
KAFKA_STORAGE_ERROR, the others serve on.

What an editor must keep true:
- A partition that may lie in a directory that could not be opened is never begun anew elsewhere: that would look like
  data loss to its users, and be one when the directory comes back. So what the metadata knew at start is lost, not
  new.
- The checkpoint files of a directory are written by one at a time (`OffsetCheckpoints.turn`).
- A log that is corrupt is begun anew only where others have what it had (`renew`), and what was there is kept aside.
- A name that is being deleted is not opened again before its directory is renamed away. What is renamed away waits for
  `log.segment.delete.delay.ms`; a stop does not wait for it, and the next start removes what is left of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import structlog

from ottla.log.directory import FoundPartition, LogDirectory, read_identity
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import (
    ApiError,
    ConfigError,
    CorruptLogError,
    ErrorCode,
    OttlaError,
    OutOfSpaceError,
    StorageError,
)
from ottla.model.ids import METADATA_TOPIC, TopicPartition, uuid_to_base64
from ottla.runtime.offset_checkpoints import OffsetCheckpoints
from ottla.runtime.ownership import check_ownership

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.log.cleaner_checkpoint import CleanerCheckpoint
    from ottla.model.configs.resolve import BrokerConfig, TopicConfig
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.world import World

log = structlog.get_logger("ottla.storage")

STRAY_SUFFIX: Final = "-stray"
FULL_SECONDS_MIN: Final = 60.0
"""Between two lines that say that a directory is full."""


class LogDirectories:
    """All of `log.dirs`."""

    __slots__ = (
        "_corrupt",
        "_counts",
        "_deleting",
        "_failed",
        "_full_at",
        "_is_closing",
        "_known_at_start",
        "_on_failure",
        "_places",
        "_removals",
        "_world",
        "broker_epoch",
        "checkpoints",
        "cluster_id",
        "files",
        "on_placed",
        "online",
        "producer_id_expiration_ms",
        "unopened",
    )

    def __init__(self, world: World, files: OpenFiles, producer_id_expiration_ms: int) -> None:
        self._world = world
        self._on_failure: Callable[[StorageError], object] = self.fail
        self.files = files
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.cluster_id = ""
        self.broker_epoch = -1
        """The epoch in which this broker is registered; a clean stop leaves it for the next start."""
        self.online: list[LogDirectory] = []
        """Those that were opened; one that failed later is still here, with its `failure` set."""
        self.unopened: dict[str, str] = {}
        """Path and reason of those that could not be opened."""
        self._places: dict[TopicPartition, LogDirectory] = {}
        self._counts: dict[LogDirectory, int] = {}
        """Partitions in each directory that may hold some; one that holds the metadata log alone is not among them."""
        self.on_placed: Callable[[TopicPartition], object] = lambda tp: None
        """Who is to hear where a new partition was placed."""
        self._known_at_start: frozenset[TopicPartition] = frozenset()
        self._failed: set[LogDirectory] = set()
        self._full_at: dict[str, float] = {}
        """When it was last said of a directory that it is full."""
        self._corrupt: dict[TopicPartition, str] = {}
        self._deleting: dict[TopicPartition, asyncio.Future[list[str]]] = {}
        self._removals: dict[asyncio.Future[None], None] = {}
        self._is_closing = asyncio.Event()
        self.checkpoints = OffsetCheckpoints(world, self._places.get, lambda error: self._on_failure(error))

    def open(self, config: BrokerConfig) -> None:
        """Take every directory of the config. runs in a thread

        StorageError if another broker holds one, if the metadata log's cannot be had, or if there is none.
        """
        disk = self._world.disk
        check_ownership(disk, config.log_dirs, config.metadata_log_dir)
        self.cluster_id = self._settle_cluster_id(config)
        for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
            try:
                if disk.exists(path) and not disk.is_dir(path):
                    raise StorageError(path, "is a file: name a directory") from NotADirectoryError(path)
                directory = LogDirectory.open(
                    path,
                    disk,
                    cluster_id=self.cluster_id,
                    node_id=config.node_id,
                    new_directory_id=self._world.new_uuid(),
                )
            except StorageError as error:
                if path == config.metadata_log_dir or not isinstance(error.__cause__, OSError):
                    self.close()
                    raise
                self.unopened[path] = str(error)
                log.error("log directory is offline", directory=path, reason=str(error))
                continue
            self.online.append(directory)
            if path in config.log_dirs:
                self._counts[directory] = 0

    def _settle_cluster_id(self, config: BrokerConfig) -> str:
        """The cluster that the directories belong to, or the one they are to belong to from now on."""
        found, told = self._find_cluster_id(config), config.cluster_id
        if found is None:
            alone = not config.controller_quorum_bootstrap_servers and all(
                voter.node_id == config.node_id for voter in config.controller_quorum_voters
            )
            if told is None and not alone:
                raise ConfigError(
                    "cluster.id: an empty data directory of a node that is not alone cannot tell its cluster. Make an "
                    "id with `ottla cluster new-id` and set it on every node; a node that joins takes that of the "
                    "others (`ottla cluster info` shows it)"
                )
            return told or uuid_to_base64(self._world.new_uuid())
        path, cluster_id = found
        if told is not None and told != cluster_id:
            raise StorageError(
                path,
                f"belongs to cluster {cluster_id}, and cluster.id says {told}. Set cluster.id to that, or give this "
                "node another data directory",
            )
        return cluster_id

    def _find_cluster_id(self, config: BrokerConfig) -> tuple[str, str] | None:
        for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
            try:
                identity = read_identity(self._world.disk, path)
            except OSError:
                continue
            if identity is not None:
                return path, identity.cluster_id
        return None

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the broker that stopped properly here; -1 if none did, or if the directories disagree."""
        epochs = dict.fromkeys(directory.previous_broker_epoch for directory in self.online)
        return next(iter(epochs)) if len(epochs) == 1 else -1

    @property
    def was_clean(self) -> bool:
        return all(directory.was_clean for directory in self.online)

    def on_failure(self, listener: Callable[[StorageError], object]) -> None:
        """Who is to hear of a failure that happens in here; the listener calls `fail`."""
        self._on_failure = listener

    def find_partitions(self, image: MetadataImage) -> None:
        """Learn which partition lies where; what the metadata does not know is set aside. runs in a thread"""
        self._known_at_start = frozenset(
            TopicPartition(topic.name, index)
            for topic in image.topics.values()
            for index in range(len(topic.partitions))
        )
        for directory in self.online:
            for path in directory.pending_deletions():
                self._world.disk.remove_tree(path)
            for found in directory.partitions():
                if found.tp.topic == METADATA_TOPIC:
                    directory.forget(found.tp)  # The quorum opens and repairs its own.
                    continue
                if not _belongs_here(image, found, directory.identity.node_id):
                    self._set_aside(directory, found.tp, found.path)
                elif directory in self._counts:
                    self._place(found.tp, directory)

    def _set_aside(self, directory: LogDirectory, tp: TopicPartition, path: str) -> None:
        """A directory that no topic owns is kept under another name: it is for a person to decide."""
        target = f"{path}.{self._world.new_uuid().hex}{STRAY_SUFFIX}"
        directory.forget(tp)
        self._world.disk.rename(path, target)
        log.warning("no partition of this broker owns this directory", directory=path, renamed_to=target)

    async def recover(self, table: PartitionTable, threads_max: int) -> int:
        """After an unclean stop: open and repair every log before anybody asks for it. Returns how many.

        After any stop what is no longer here leaves the checkpoints first: what others store soon may not get there.
        """
        try:
            await self.checkpoints.forget(self.online)
        except OutOfSpaceError as error:
            self.is_full(error)
        unrecovered = [
            partition
            for partition in table
            if (directory := self._places.get(partition.topic_partition)) is not None and not directory.was_clean
        ]
        room = asyncio.Semaphore(threads_max)

        async def repair(partition: Partition) -> None:
            async with room:
                try:
                    config = table.topic(partition.topic).config
                    opened = await self._world.offload.run(self.open_log, partition, config)
                except (OttlaError, OSError) as error:
                    log.error("a partition stays offline", partition=str(partition.topic_partition), reason=str(error))
                else:
                    partition.adopt(opened)

        await asyncio.gather(*map(repair, unrecovered))
        try:
            await self.checkpoint(unrecovered)
            # Where a crash took the end, another leader's records may come, and be committed by nobody for a while.
            await self.checkpoints.store_high_watermarks(unrecovered)
        except OutOfSpaceError as error:
            self.is_full(error)
        return len(unrecovered)

    def open_log(self, partition: Partition, config: TopicConfig) -> PartitionLog:
        """The partition's log; fast after a clean stop."""
        tp = partition.topic_partition
        if tp in self._corrupt:
            raise CorruptLogError(self._corrupt[tp])
        if partition.gone:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} is not here any more")
        if tp in self._deleting:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"an older {tp} is still being deleted; try again")
        directory = self._places.get(tp) or self._choose(tp)
        try:
            return directory.open_log(
                tp,
                config,
                self.files,
                now_ms=self._world.clock.now_ms(),
                topic_id=partition.topic_id,
                producer_id_expiration_ms=self.producer_id_expiration_ms,
            )
        except CorruptLogError as error:
            self._corrupt[tp] = str(error)
            log.error("log is corrupt, its partition is offline", partition=str(tp), reason=str(error))
            raise

    def set_corrupt(self, partition: Partition, reason: str) -> None:
        """Take one partition offline: something that was safe on disk no longer checks out."""
        self._corrupt[partition.topic_partition] = reason
        partition.log_or_none = None
        partition.changed()

    async def renew(self, partition: Partition) -> None:
        """Keep the directory of a corrupt log aside, and let the partition begin anew in its place.

        For a replica that neither leads nor is in sync: everything that was in it is on others.
        """
        tp = partition.topic_partition
        directory = self._places.get(tp)
        if directory is not None:
            partition.log_or_none = None
            target = f"{directory.partition_path(tp)}.{self._world.new_uuid().hex}{STRAY_SUFFIX}"
            async with self.checkpoints.turn(directory):
                await self._world.offload.run(directory.set_aside, tp, target)
            log.warning("a corrupt log was put aside, it is fetched anew", partition=str(tp), renamed_to=target)
        self._corrupt.pop(tp, None)

    def is_corrupt(self, tp: TopicPartition) -> bool:
        return tp in self._corrupt

    def directory_of(self, tp: TopicPartition) -> LogDirectory | None:
        return self._places.get(tp)

    def end_at_rest(self, partition: Partition) -> int | None:
        """Up to where there is something to read in a log that nobody has opened yet; None where only the log knows.

        A clean stop stores it, and whoever changes it opens the log.
        """
        tp = partition.topic_partition
        directory = self._places.get(tp)
        if directory is None:
            return None if self.unopened else 0
        if tp in self._corrupt or not (directory.online and directory.was_clean):
            return None
        stored = directory.recovery_points if partition.is_sole else directory.high_watermarks
        return stored.get(tp)

    def cleaner_checkpoint(self, tp: TopicPartition) -> CleanerCheckpoint:
        return self._places[tp].cleaner

    def place(self, tp: TopicPartition) -> None:
        """Choose a directory for a partition that lies in none. ApiError if it may lie in one that is offline."""
        self._choose(tp)

    def _choose(self, tp: TopicPartition) -> LogDirectory:
        if self.unopened and tp in self._known_at_start:
            offline = ", ".join(self.unopened)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} may lie in a directory that is offline: {offline}")
        candidates = [directory for directory in self._counts if directory.online]
        if not candidates:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        directory = min(candidates, key=lambda candidate: self._counts[candidate])
        self._place(tp, directory)
        self.on_placed(tp)
        return directory

    def _place(self, tp: TopicPartition, directory: LogDirectory) -> None:
        self._places[tp] = directory
        self._counts[directory] += 1

    def fail(self, error: StorageError) -> bool:
        """Take the directory that an error names offline; False if it was offline already."""
        for directory in self.online:
            if _is_below(error.directory, directory.path):
                if directory in self._failed:
                    return False
                self._failed.add(directory)
                directory.fail(str(error))
                log.error("log directory is offline from now on", directory=directory.path, reason=str(error))
                return True
        return False

    def is_full(self, error: OutOfSpaceError) -> None:
        """Tell the operator that a directory has no room; every write fails now, and one line in a while will do."""
        path = next((each.path for each in self.online if _is_below(error.directory, each.path)), error.directory)
        now = self._world.clock.monotonic()
        if now - self._full_at.get(path, -FULL_SECONDS_MIN) >= FULL_SECONDS_MIN:
            self._full_at[path] = now
            log.error("log directory is full, and refuses what is written to it", directory=path, reason=str(error))

    # -- deletion

    def delete(self, partitions: Sequence[Partition], delay_ms: int) -> None:
        """Rename the directories of deleted partitions away, and remove them when the delay is over.

        The threads of `offload` do both; `deletions_settled` waits for the names.
        """
        by_directory: dict[LogDirectory, list[tuple[TopicPartition, PartitionLog | None]]] = {}
        for partition in partitions:
            tp = partition.topic_partition
            self._corrupt.pop(tp, None)
            directory = self._places.pop(tp, None)
            if directory is not None:
                self._counts[directory] -= 1
                by_directory.setdefault(directory, []).append((tp, partition.log_or_none))
                partition.log_or_none = None
        for directory, logs in by_directory.items():
            renamed = asyncio.ensure_future(self._rename_away(directory, logs))
            for tp, _ in logs:
                self._deleting[tp] = renamed
            removed = asyncio.ensure_future(self._remove_later(renamed, delay_ms / 1000))
            self._removals[removed] = None
            removed.add_done_callback(self._removals.pop)

    async def _rename_away(
        self, directory: LogDirectory, logs: Sequence[tuple[TopicPartition, PartitionLog | None]]
    ) -> list[str]:
        try:
            async with self.checkpoints.turn(directory):
                return await self._world.offload.run(directory.begin_deletions, logs, self._world.new_uuid)
        except StorageError as error:
            self._on_failure(error)
            return []
        finally:
            for tp, _ in logs:
                self._deleting.pop(tp, None)

    async def _remove_later(self, renamed: asyncio.Future[list[str]], seconds: float) -> None:
        paths = await renamed
        try:
            async with asyncio.timeout(seconds):
                await self._is_closing.wait()
        except TimeoutError:
            await self._world.offload.run(self._remove_trees, paths)

    def _remove_trees(self, paths: Iterable[str]) -> None:
        """runs in a thread"""
        for path in paths:
            try:
                self._world.disk.remove_tree(path)
            except OSError as error:
                log.error("what was deleted could not be removed", directory=path, reason=str(error))

    async def deletions_settled(self) -> None:
        """Return when every name that was deleted up to now may be used again."""
        if self._deleting:
            await asyncio.wait(set(self._deleting.values()))

    # -- checkpoints and the end

    async def checkpoint(self, partitions: Iterable[Partition]) -> None:
        """Store recovery points and log starts of the partitions that are open."""
        await self.checkpoints.store(partitions)

    async def close_logs(self, partitions: Iterable[Partition]) -> None:
        """Close every open log and mark the directories whose logs are all closed as cleanly stopped.

        Directories whose time has not come stay, and go at the next start.
        """
        self._is_closing.set()
        if self._removals:
            await asyncio.wait(self._removals)
        opened = [partition for partition in partitions if partition.log_or_none is not None]
        failed: set[LogDirectory] = set()

        async def close(partition: Partition) -> None:
            directory = self._places.get(partition.topic_partition)
            try:
                await self._world.offload.run(partition.log.close)
            except (OttlaError, OSError) as error:
                log.error("log could not be closed", partition=str(partition.topic_partition), reason=str(error))
                if directory is not None:
                    failed.add(directory)

        await asyncio.gather(*map(close, opened))
        for directory in self.online:
            if directory.online and directory not in failed:
                points = [p for p in opened if self._places.get(p.topic_partition) is directory]
                try:
                    await self.checkpoint(points)
                    await self.checkpoints.store_high_watermarks(points)
                    await self._world.offload.run(directory.mark_clean, self.broker_epoch)
                except OttlaError as error:
                    log.error("log directory could not be closed", directory=directory.path, reason=str(error))

    def close(self) -> None:
        """Let others have the directories."""
        for directory in self.online:
            directory.close()

    def ids(self) -> list[UUID]:
        return [directory.directory_id for directory in self.online if directory.online]

    def offline_ids(self) -> list[UUID]:
        """Of those that failed since the start."""
        return [directory.directory_id for directory in self.online if not directory.online]


def _belongs_here(image: MetadataImage, found: FoundPartition, node_id: int) -> bool:
    """Whether a directory is that of a replica that the metadata has on this node."""
    topic = image.topics.get(found.tp.topic)
    if topic is None or found.topic_id not in (None, topic.id) or found.tp.partition >= len(topic.partitions):
        return False
    return node_id in topic.partitions[found.tp.partition].replicas


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")
