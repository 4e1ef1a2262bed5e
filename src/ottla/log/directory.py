"""One of the `log.dirs`: who it belongs to, which partitions lie in it, and what is safe in each of them.

Theory of operation. A directory carries Kafka's own files: `meta.properties` (which cluster, which node), `.lock` (one
broker at a time), `.kafka_cleanshutdown` (everything was closed properly), and four checkpoints that map partitions to
offsets, the cleaner's among them. It fails alone: when a disk does, `fail` takes this directory out and the others
serve on.

What an editor must keep true:
- The mark of a clean stop is taken away before the first log is opened, and it is set only when no log is left that was
  never looked at since an unclean stop (`open_log` does the looking). Else the next start would trust torn files.
- A recovery point that is on disk was reached; one that must go back (deletion, truncation) goes back on disk first.
  A partition that comes back under its old name must not meet the recovery point of its former life.

Methods that write files block, and are for threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

from ottla.log import names
from ottla.log.checkpoints import (
    CorruptCheckpointError,
    encode_properties,
    read_offsets,
    read_properties,
    read_topic_id,
    write_offsets,
)
from ottla.log.cleaner_checkpoint import CleanerCheckpoint
from ottla.log.disk import Disk, Lock
from ottla.log.failures import is_out_of_space, out_of_space
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import PRODUCER_ID_EXPIRATION_MS_DEFAULT
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, StorageError
from ottla.model.ids import TopicPartition, uuid_from_base64, uuid_to_base64

META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_MARKED_EPOCH: Final = re.compile(rb'"brokerEpoch"\s*:\s*(-?[0-9]{1,19})\b')


class DirectoryIdentity(NamedTuple):
    """Whose directory it is."""

    cluster_id: str
    node_id: int
    directory_id: UUID


class FoundPartition(NamedTuple):
    """A partition's directory; the topic id is None if a crash left none there."""

    tp: TopicPartition
    path: str
    topic_id: UUID | None


def read_identity(disk: Disk, path: str) -> DirectoryIdentity | None:
    """Whose directory `path` is, None if nobody has taken it yet."""
    properties = read_properties(disk, f"{path}/{META_PROPERTIES}")
    if not properties:
        return None
    try:
        if properties["version"] != "1":
            raise StorageError(path, f"{META_PROPERTIES} has version {properties['version']}, known is 1")
        directory_id = uuid_from_base64(properties["directory.id"])
        return DirectoryIdentity(properties["cluster.id"], int(properties["node.id"]), directory_id)
    except (KeyError, ValueError) as error:
        raise StorageError(path, f"{META_PROPERTIES} cannot be read: {error!r}") from error


class LogDirectory:
    """One of the directories that hold logs, taken by this broker."""

    __slots__ = (
        "_disk",
        "_is_behind",
        "_lock",
        "_unrecovered",
        "cleaner",
        "failure",
        "high_watermarks",
        "identity",
        "log_start_offsets",
        "path",
        "previous_broker_epoch",
        "recovery_points",
        "was_clean",
    )

    def __init__(self, path: str, disk: Disk, identity: DirectoryIdentity, lock: Lock) -> None:
        self.path = path
        self.identity = identity
        self.failure: str | None = None
        """Why the directory is offline, None while it is online."""
        self._disk = disk
        self._lock = lock
        self.was_clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
        """Whether the broker before this one stopped properly."""
        self.previous_broker_epoch = self._marked_epoch() if self.was_clean else -1
        """The epoch in which that broker was registered, -1 if it did not say or did not stop properly."""
        found = {tp for tp, _ in self._partition_paths()}
        self._is_behind = False
        """The files have offsets of partitions that are not here any more."""
        self.recovery_points = self._load(RECOVERY_POINTS, found)
        self.log_start_offsets = self._load(LOG_START_OFFSETS, found)
        self.high_watermarks = self._load(HIGH_WATERMARKS, found)
        self.cleaner = CleanerCheckpoint(disk, path)
        self.cleaner.retain(found)
        self._unrecovered: set[TopicPartition] = set() if self.was_clean else found
        if disk.exists(f"{path}/{CLEAN_SHUTDOWN}"):
            disk.remove(f"{path}/{CLEAN_SHUTDOWN}")
            disk.sync_dir(path)

    @classmethod
    def open(cls, path: str, disk: Disk, *, cluster_id: str, node_id: int, new_directory_id: UUID) -> LogDirectory:
        """Take a directory; an empty one is made and marked as ours. StorageError if it is another's, or in use."""
        path = path.rstrip("/") or "/"
        try:
            disk.makedirs(path)
            lock = disk.lock(f"{path}/{LOCK}")
            try:
                identity = _settle_identity(disk, path, DirectoryIdentity(cluster_id, node_id, new_directory_id))
                return cls(path, disk, identity, lock)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise StorageError(path, str(error)) from error

    @property
    def directory_id(self) -> UUID:
        return self.identity.directory_id

    # -- partitions

    def partition_path(self, tp: TopicPartition) -> str:
        return f"{self.path}/{tp}"

    def partitions(self) -> list[FoundPartition]:
        """The partitions that lie here, without those that wait for deletion."""
        return [FoundPartition(tp, path, self._topic_id(path)) for tp, path in self._partition_paths()]

    def _partition_paths(self) -> list[tuple[TopicPartition, str]]:
        parsed = [(names.parse_partition_name(name), f"{self.path}/{name}") for name in self._disk.listdir(self.path)]
        return [(tp, path) for tp, path in parsed if tp is not None and self._disk.is_dir(path)]

    def _topic_id(self, path: str) -> UUID | None:
        try:
            return read_topic_id(self._disk, f"{path}/{names.PARTITION_METADATA}")
        except CorruptCheckpointError:
            return None

    def open_log(
        self,
        tp: TopicPartition,
        config: TopicConfig,
        files: OpenFiles,
        *,
        now_ms: int,
        topic_id: UUID | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS_DEFAULT,
    ) -> PartitionLog:
        """Open or begin the log of a partition, with what the checkpoints say about it.

        Fast after a clean stop; after an unclean one it reads, and is for a thread.
        """
        self.check_online()
        log = PartitionLog.open(
            self.partition_path(tp),
            tp,
            config,
            self._disk,
            files,
            log_start_offset=self.log_start_offsets.get(tp, 0),
            recovery_point=self.recovery_points.get(tp, 0),
            clean=self.was_clean,
            now_ms=now_ms,
            topic_id=topic_id,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        self._unrecovered.discard(tp)
        self.cleaner.truncate(tp, log.log_end_offset)  # A crash may have taken what had been looked at.
        return log

    @property
    def unrecovered(self) -> list[TopicPartition]:
        """Partitions that nobody has opened since an unclean stop."""
        return sorted(self._unrecovered)

    # -- deletion

    def begin_deletion(self, tp: TopicPartition, unique: UUID, log: PartitionLog | None = None) -> str:
        """Rename a partition away so that its name is free; returns the path to remove later. Blocks.

        Its offsets leave the checkpoints before: a new partition of that name begins at 0.
        """
        target = f"{self.path}/{names.deletion_name(str(tp), unique.hex)}"
        self._forget_durably([tp])
        if log is not None:
            log.rename_for_deletion(target)
        else:
            self._do(lambda: self._disk.rename(self.partition_path(tp), target))
        self._do(lambda: self._disk.sync_dir(self.path))
        return target

    def begin_deletions(
        self, logs: Sequence[tuple[TopicPartition, PartitionLog | None]], new_uuid: Callable[[], UUID]
    ) -> list[str]:
        """`begin_deletion` for many partitions, with the checkpoints written once. Blocks."""
        self._forget_durably([tp for tp, _ in logs])
        targets = []
        for tp, log in logs:
            target = f"{self.path}/{names.deletion_name(str(tp), new_uuid().hex)}"
            if log is not None:
                log.rename_for_deletion(target)
            elif self._disk.is_dir(self.partition_path(tp)):
                self._disk_rename(self.partition_path(tp), target)
            else:
                continue
            targets.append(target)
        self._do(lambda: self._disk.sync_dir(self.path))
        return targets

    def set_aside(self, tp: TopicPartition, target: str) -> None:
        """Rename a partition to a name that nobody opens, after its offsets have left the checkpoints. Blocks."""
        self.forget(tp)
        self.write_checkpoints()
        if self._disk.is_dir(self.partition_path(tp)):
            self._disk_rename(self.partition_path(tp), target)
            self._do(lambda: self._disk.sync_dir(self.path))

    def _forget_durably(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            self.forget(tp)
        # On a full disk deletion must go on, since it makes room; the next checkpoint forgets them.
        with suppress(ApiError):
            self.write_checkpoints()

    def _disk_rename(self, source: str, target: str) -> None:
        self._do(lambda: self._disk.rename(source, target))

    def forget(self, tp: TopicPartition) -> None:
        """A partition is not this directory's any more; its offsets leave the files with the next checkpoint."""
        for offsets in (self.recovery_points, self.log_start_offsets, self.high_watermarks):
            self._is_behind |= offsets.pop(tp, None) is not None
        self.cleaner.forget(tp)
        self._unrecovered.discard(tp)

    def pending_deletions(self) -> list[str]:
        """Directories that were renamed away and are still there."""
        return [
            f"{self.path}/{name}" for name in self._disk.listdir(self.path) if name.endswith(names.DIRECTORY_DELETED)
        ]

    # -- checkpoints

    def checkpoint(
        self,
        *,
        recovery_points: Mapping[TopicPartition, int] | None = None,
        log_start_offsets: Mapping[TopicPartition, int] | None = None,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Store offsets of some partitions; the others keep theirs. A file is written if it changes. Blocks.

        What the cleaner has to say is stored with them.
        """
        self.check_online()
        for name, offsets, news in (
            (RECOVERY_POINTS, self.recovery_points, recovery_points),
            (LOG_START_OFFSETS, self.log_start_offsets, log_start_offsets),
            (HIGH_WATERMARKS, self.high_watermarks, high_watermarks),
        ):
            if news and not news.items() <= offsets.items():
                self._write(name, {**offsets, **news})
                offsets.update(news)
        if self._is_behind:
            self.write_checkpoints()
        self._write_cleaner()

    def write_checkpoints(self) -> None:
        """Write all files as they are in memory. Blocks."""
        self._write_cleaner()
        self._write(RECOVERY_POINTS, self.recovery_points)
        self._write(LOG_START_OFFSETS, self.log_start_offsets)
        self._write(HIGH_WATERMARKS, self.high_watermarks)
        self._is_behind = False

    @property
    def is_stored(self) -> bool:
        """Whether the files have nothing that is not so any more."""
        return self.cleaner.is_stored and not self._is_behind

    def _write_cleaner(self) -> None:
        if not self.cleaner.is_stored:
            self._do(self.cleaner.write)

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._do(lambda: write_offsets(self._disk, f"{self.path}/{name}", dict(offsets)))

    def _load(self, name: str, found: set[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            offsets = read_offsets(self._disk, f"{self.path}/{name}")
        except CorruptCheckpointError:
            # Then nothing is known to be safe, and everything is looked at.
            self.was_clean = False
            return {}
        kept = {tp: offset for tp, offset in offsets.items() if tp in found}
        self._is_behind |= len(kept) < len(offsets)
        return kept

    # -- health and the end

    @property
    def online(self) -> bool:
        return self.failure is None

    def fail(self, reason: str) -> None:
        """Take the directory out of service for good; the other ones serve on."""
        if self.failure is None:
            self.failure = reason

    def check_online(self) -> None:
        if self.failure is not None:
            raise StorageError(self.path, f"offline: {self.failure}")

    def free_bytes(self) -> int:
        return self._disk.free_bytes(self.path)

    def total_bytes(self) -> int:
        return self._disk.total_bytes(self.path)

    def mark_clean(self, broker_epoch: int = -1) -> bool:
        """All logs are closed: let the next start trust them. False if that would be wrong. Blocks."""
        if self._unrecovered or not self.online:
            return False
        try:
            self.write_checkpoints()
            self._write_clean_mark(broker_epoch)
        except ApiError:
            return False
        return True

    def _marked_epoch(self) -> int:
        match = _MARKED_EPOCH.search(self._disk.read(f"{self.path}/{CLEAN_SHUTDOWN}"))
        return -1 if match is None else int(match[1])

    def _write_clean_mark(self, broker_epoch: int) -> None:
        content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        self._do(lambda: self._disk.write_atomically(f"{self.path}/{CLEAN_SHUTDOWN}", content.encode()))

    def close(self) -> None:
        """Let another broker have the directory."""
        self._lock.release()

    def _do(self, work: Callable[[], None]) -> None:
        """Touch the disk; a failure takes the directory out, unless it is only full."""
        try:
            work()
        except OSError as error:
            if is_out_of_space(error):
                raise out_of_space(self.path, error) from error
            self.fail(str(error))
            raise StorageError(self.path, str(error)) from error


def _settle_identity(disk: Disk, path: str, wanted: DirectoryIdentity) -> DirectoryIdentity:
    found = read_identity(disk, path)
    if found is None:
        properties = {
            "version": "1",
            "cluster.id": wanted.cluster_id,
            "node.id": str(wanted.node_id),
            "directory.id": uuid_to_base64(wanted.directory_id),
        }
        _sync_names_above(disk, path)
        disk.write_atomically(f"{path}/{META_PROPERTIES}", encode_properties(properties))
        return wanted
    if (found.cluster_id, found.node_id) != (wanted.cluster_id, wanted.node_id):
        raise StorageError(
            path,
            f"belongs to node {found.node_id} of cluster {found.cluster_id}, "
            f"not to node {wanted.node_id} of cluster {wanted.cluster_id}",
        )
    return found


def _sync_names_above(disk: Disk, path: str) -> None:
    """Before anything in a new directory counts, its own name does: it may have been made just now, parents and all."""
    while path not in ("", "/"):
        path = path.rpartition("/")[0] or "/"
        try:
            disk.sync_dir(path)
        except PermissionError:
            return  # Nor was it made by us, then.
