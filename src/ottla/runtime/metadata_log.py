"""Reading the metadata back at start: the newest snapshot, then the log after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.core.controller.builder import ImageBuilder
from ottla.core.controller.image import MetadataImage
from ottla.core.quorum.voters import VoterSet
from ottla.log.disk import Disk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import BrokerConfig, TopicConfig
from ottla.model.errors import CorruptLogError
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_LEADER_EPOCH, TopicPartition
from ottla.runtime.metadata_snapshot import SnapshotContent, SnapshotId, list_snapshots, read_snapshot
from ottla.runtime.quorum_records import LoggedBatch, read_batches
from ottla.runtime.quorum_state import FILE_NAME, QuorumState, read_quorum_state

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_READ_BYTES: Final = 1 << 20
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """What was found on disk."""

    log: PartitionLog
    state: QuorumState
    snapshots: list[SnapshotId]
    """The newest first; the log starts at the end of the last one."""
    image: MetadataImage
    """What the newest snapshot says."""
    voters: VoterSet | None
    """Likewise."""
    batches: list[LoggedBatch]
    """The log after the newest snapshot; how much of it is committed, only the quorum knows."""

    @property
    def epoch(self) -> int:
        """The highest epoch that was ever seen here."""
        last = self.batches[-1].epoch if self.batches else self.image.epoch
        return max(self.state.leader_epoch, last)


def metadata_log_config(config: BrokerConfig) -> TopicConfig:
    """How the metadata log is kept: nothing goes by age or size, only snapshots make room."""
    internal = config.get("internal.metadata.log.segment.bytes")
    return TopicConfig(
        segment_bytes=internal if isinstance(internal, int) else config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        cleanup_delete=False,
        max_message_bytes=_INT_MAX,
    )


def load_metadata_log(
    disk: Disk, files: OpenFiles, directory: str, config: BrokerConfig, cluster_id: str, now_ms: int
) -> MetadataLog:  # runs in a thread
    """Open the log and replay it. Blocks; CorruptLogError if something that was safe is damaged or missing."""
    stored = read_quorum_state(disk, f"{directory}/{FILE_NAME}")
    state = stored or QuorumState()
    snapshots = list_snapshots(disk, directory)
    image, voters = MetadataImage(cluster_id=cluster_id), None
    if snapshots:
        image, voters = image_of_snapshot(snapshots[0], read_snapshot(disk, directory, snapshots[0]), cluster_id)
    log = PartitionLog.open(
        directory,
        METADATA_PARTITION,
        metadata_log_config(config),
        disk,
        files,
        log_start_offset=snapshots[-1].end_offset if snapshots else 0,
        recovery_point=state.synced_offset,
        clean=False,
        now_ms=now_ms,
        topic_id=METADATA_TOPIC_ID,
    )
    if stored is None:
        # The first vote is worth nothing if the name of its directory goes with the power.
        disk.sync_dir(directory.rpartition("/")[0])
    if log.log_end_offset < state.synced_offset:
        raise CorruptLogError(
            f"{directory} ends at offset {log.log_end_offset}, but everything below offset {state.synced_offset} was "
            "safe on disk"
        )
    snapshots = _join(log, snapshots, now_ms)
    batches = list(_batches(log, snapshots[0].end_offset if snapshots else 0))
    if log.recovery_point < log.log_end_offset:
        # What a crash left whole counts from now on, so it must not get lost in the next one.
        log.sync_until(log.log_end_offset)
        log.mark_flushed(log.log_end_offset)
    return MetadataLog(log, state, snapshots, image, voters, batches)


def image_of_snapshot(
    snapshot: SnapshotId, content: SnapshotContent, cluster_id: str
) -> tuple[MetadataImage, VoterSet | None]:
    """What a snapshot says."""
    builder = ImageBuilder(MetadataImage(cluster_id=cluster_id))
    for record in content.records:
        builder.apply(record)
    return builder.build(offset=snapshot.end_offset - 1, epoch=snapshot.epoch)[0], content.voters


def _join(log: PartitionLog, snapshots: list[SnapshotId], now_ms: int) -> list[SnapshotId]:
    """Make log and snapshots fit: the log goes on where a snapshot ends. Returns the snapshots that are left."""
    newest = snapshots[0] if snapshots else SnapshotId(0, 0)
    if log.log_start_offset > newest.end_offset:
        raise CorruptLogError(
            f"{log.directory} begins at offset {log.log_start_offset}, but the newest snapshot ends at "
            f"{newest.end_offset}: the records in between are missing"
        )
    before = log.epochs.epoch_of(newest.end_offset - 1)
    parted = log.log_start_offset < newest.end_offset and before not in (NO_LEADER_EPOCH, newest.epoch)
    if log.log_end_offset < newest.end_offset or parted:
        # A crash came between the arrival of a leader's snapshot and the end of the log that it replaces.
        log.delete_files(log.truncate_fully_and_start_at(newest.end_offset, now_ms))
    fitting = [snapshot for snapshot in snapshots if snapshot.end_offset >= log.log_start_offset]
    if fitting and fitting[-1].end_offset > log.log_start_offset:
        log.delete_files(log.delete_records_before(fitting[-1].end_offset))
    return fitting


def _batches(log: PartitionLog, offset: int) -> Iterator[LoggedBatch]:
    while offset < log.log_end_offset:
        found = log.read(offset, _READ_BYTES, log.log_end_offset, at_least_one=True)
        data = memoryview(b"" if found is None else found.file.pread(found.length, found.position))
        before = offset
        for batch in read_batches(data):
            if batch.last_offset < before:
                continue
            if batch.base_offset > offset:
                raise CorruptLogError(f"{log.directory}: records {offset} to {batch.base_offset - 1} are missing")
            yield batch
            offset = batch.last_offset + 1
        if offset == before:
            raise CorruptLogError(f"{log.directory}: there is no record batch at offset {offset}")
