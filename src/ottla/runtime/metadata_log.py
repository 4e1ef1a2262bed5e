"""Reading the metadata back at start: the newest snapshot, then the log after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.core.controller.builder import ImageBuilder
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.records import Record
from ottla.log.disk import Disk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import BrokerConfig, TopicConfig
from ottla.model.errors import ApiError, CorruptLogError
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from ottla.runtime.metadata_codec import decode_record
from ottla.runtime.metadata_snapshot import SnapshotId, list_snapshots, read_snapshot
from ottla.runtime.quorum_state import FILE_NAME, QuorumState, read_quorum_state
from ottla.wire import batch as record_batch
from ottla.wire import records as wire_records
from ottla.wire.batch import BatchHeader

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_READ_BYTES: Final = 1 << 20
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """What was found on disk."""

    log: PartitionLog
    image: MetadataImage
    epoch: int
    """The highest epoch that has been used."""
    bytes_since_snapshot: int

    @property
    def is_new(self) -> bool:
        return self.image.offset < 0


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
    state = read_quorum_state(disk, f"{directory}/{FILE_NAME}") or QuorumState()
    builder = ImageBuilder(MetadataImage(cluster_id=cluster_id))
    snapshot = _replay_snapshot(disk, directory, builder)
    log = PartitionLog.open(
        directory,
        METADATA_PARTITION,
        metadata_log_config(config),
        disk,
        files,
        log_start_offset=snapshot.end_offset,
        recovery_point=max(state.synced_offset, snapshot.end_offset),
        clean=False,
        now_ms=now_ms,
        topic_id=METADATA_TOPIC_ID,
    )
    if log.log_end_offset < state.synced_offset:
        raise CorruptLogError(
            f"{directory} ends at offset {log.log_end_offset}, but everything below offset {state.synced_offset} was "
            "safe on disk"
        )
    epoch, replayed_bytes = _replay_log(log, snapshot, builder)
    if log.recovery_point < log.log_end_offset:
        # What a crash left whole counts from now on, so it must not get lost in the next one.
        log.sync_until(log.log_end_offset)
        log.mark_flushed(log.log_end_offset)
    image, _ = builder.build(offset=log.log_end_offset - 1, epoch=epoch)
    return MetadataLog(log, image, max(epoch, state.leader_epoch), replayed_bytes)


def _replay_snapshot(disk: Disk, directory: str, builder: ImageBuilder) -> SnapshotId:
    """The newest snapshot; one at offset 0 if there is none."""
    snapshots = list_snapshots(disk, directory)
    if not snapshots:
        return SnapshotId(0, 0)
    for record in read_snapshot(disk, directory, snapshots[0]):
        builder.apply(record)
    return snapshots[0]


def _replay_log(log: PartitionLog, snapshot: SnapshotId, builder: ImageBuilder) -> tuple[int, int]:
    """Apply what comes after the snapshot; the last epoch and how many bytes it was."""
    if log.log_start_offset > snapshot.end_offset:
        raise CorruptLogError(
            f"{log.directory} begins at offset {log.log_start_offset}, but the newest snapshot ends at "
            f"{snapshot.end_offset}: the records in between are missing"
        )
    epoch, size = snapshot.epoch, 0
    for header, records in _batches(log, snapshot.end_offset):
        epoch = header.partition_leader_epoch
        size += header.size
        for record in records:
            builder.apply(record)
    return epoch, size


def _batches(log: PartitionLog, offset: int) -> Iterator[tuple[BatchHeader, list[Record]]]:
    while offset < log.log_end_offset:
        found = log.read(offset, _READ_BYTES, log.log_end_offset, at_least_one=True)
        data = memoryview(b"" if found is None else found.file.pread(found.length, found.position))
        before = offset
        for position, header in record_batch.iterate(data):
            if header.last_offset < before:
                continue
            if header.base_offset > offset:
                raise CorruptLogError(f"{log.directory}: records {offset} to {header.base_offset - 1} are missing")
            yield header, _records(log, data[position : position + header.size], header)
            offset = header.last_offset + 1
        if offset == before:
            raise CorruptLogError(f"{log.directory}: there is no record batch at offset {offset}")


def _records(log: PartitionLog, batch: memoryview, header: BatchHeader) -> list[Record]:
    try:
        records = wire_records.iterate(batch)
    except ApiError as error:
        raise CorruptLogError(f"{log.directory}, offset {header.base_offset}: {error.message}") from error
    return [] if header.is_control else [decode_record(record.value or b"") for record in records]
