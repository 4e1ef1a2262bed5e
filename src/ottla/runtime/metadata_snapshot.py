"""Snapshots of the metadata: files `<end offset>-<epoch>.checkpoint`, in Kafka's format.

A snapshot stands for all records below its end offset. It is a row of record batches: a header, the records that lead
to the image, a footer. It is written under another name and synced before it gets its own, so a file with the right
name is whole; the footer and the checksums make sure of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from ottla.core.controller.image import MetadataImage
from ottla.core.controller.records import Record
from ottla.core.controller.snapshot import snapshot_records
from ottla.core.quorum.voters import VoterSet
from ottla.log.disk import Disk
from ottla.model.errors import ApiError, CorruptLogError, MalformedMessageError
from ottla.runtime.metadata_codec import (
    KRAFT_VOTERS,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    build_batch,
    build_control_batch,
    build_control_records,
    control_kind,
    decode_record,
)
from ottla.runtime.quorum_records import read_voters, voter_records
from ottla.wire import batch as record_batch
from ottla.wire import records as wire_records
from ottla.wire.messages.metadata_records import SnapshotFooterRecord, SnapshotHeaderRecord

_NAME: Final = re.compile(r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint")
PART_SUFFIX: Final = ".part"
_RECORDS_PER_BATCH: Final = 1000


class SnapshotId(NamedTuple):
    """Where a snapshot stands: the first offset it does not hold, and the epoch of the last one it holds."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """The snapshots in a directory, the newest first; none if there is no such directory."""
    if not disk.is_dir(directory):
        return []
    found = (_NAME.fullmatch(name) for name in disk.listdir(directory))
    return sorted((SnapshotId(int(match["offset"]), int(match["epoch"])) for match in found if match), reverse=True)


class SnapshotContent(NamedTuple):
    """What is in a snapshot."""

    records: list[Record]
    voters: VoterSet | None


def write_snapshot(
    disk: Disk, directory: str, image: MetadataImage, now_ms: int, voters: VoterSet | None = None
) -> SnapshotId:  # runs in a thread
    """Returns when the snapshot of an image is on disk under its name. Blocks for long: call it in a thread."""
    snapshot = SnapshotId(image.offset + 1, image.epoch)
    path = f"{directory}/{snapshot.file_name}"
    file = disk.open(path + PART_SUFFIX, create=True)
    file.truncate(0)
    position = 0
    for batch in _batches(image, now_ms, voters):
        file.pwrite(batch, position)
        position += len(batch)
    file.sync()
    file.close()
    disk.rename(path + PART_SUFFIX, path)
    disk.sync_dir(directory)
    return snapshot


def _batches(image: MetadataImage, now_ms: int, voters: VoterSet | None) -> Iterator[bytearray]:
    epoch = image.epoch
    header = SnapshotHeaderRecord(last_contained_log_timestamp=now_ms)
    control = [(SNAPSHOT_HEADER, header), *(voter_records(voters, with_version=True) if voters is not None else ())]
    yield build_control_records(control, base_offset=0, leader_epoch=epoch, now_ms=now_ms)
    offset = len(control)
    for records in _chunks(snapshot_records(image)):
        yield build_batch(records, base_offset=offset, leader_epoch=epoch, now_ms=now_ms)
        offset += len(records)
    footer = SnapshotFooterRecord()
    yield build_control_batch(SNAPSHOT_FOOTER, footer, base_offset=offset, leader_epoch=epoch, now_ms=now_ms)


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    remaining = iter(records)
    while chunk := list(islice(remaining, _RECORDS_PER_BATCH)):
        yield chunk


def read_snapshot(disk: Disk, directory: str, snapshot: SnapshotId) -> SnapshotContent:
    """What is in a snapshot; CorruptLogError if it is not whole. Blocks."""
    return read_snapshot_file(disk, f"{directory}/{snapshot.file_name}")


def read_snapshot_file(disk: Disk, path: str) -> SnapshotContent:
    """`read_snapshot`, by path. Blocks."""
    data = memoryview(disk.read(path))
    edges: list[int] = []
    content = SnapshotContent([], None)
    end = 0
    try:
        for position, header in record_batch.iterate(data):
            end = position + header.size
            for record in wire_records.iterate(data[position:end]):
                if header.is_control:
                    edges.append(control_kind(record.key))
                    if edges[-1] == KRAFT_VOTERS:
                        content = content._replace(voters=read_voters(record.value or b""))
                else:
                    content.records.append(decode_record(record.value or b""))
    except (ApiError, MalformedMessageError) as error:
        raise CorruptLogError(f"{path} is damaged: {error}") from error
    if end != len(data) or edges[:1] != [SNAPSHOT_HEADER] or edges[-1:] != [SNAPSHOT_FOOTER]:
        raise CorruptLogError(f"{path} is not whole")
    return content


def remove_older_snapshots(disk: Disk, directory: str, newest: SnapshotId) -> None:
    """Remove what the newest snapshot has made superfluous, and unfinished ones."""
    for snapshot in list_snapshots(disk, directory):
        if snapshot < newest:
            disk.remove(f"{directory}/{snapshot.file_name}")
    for name in disk.listdir(directory):
        if name.endswith(".checkpoint" + PART_SUFFIX):
            disk.remove(f"{directory}/{name}")
