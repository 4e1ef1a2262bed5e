"""Logs and batches for the tests of the log."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.log.disk import Disk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import Appended, PartitionLog
from ottla.model.chunks import FileSlice
from ottla.model.configs.resolve import TopicConfig
from ottla.model.ids import TopicPartition
from ottla.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, iterate, read_header
from ottla.wire.records import Record, build_batch

TP = TopicPartition("orders", 3)
NOW_MS = 1_700_000_000_000


class ProducerFields(NamedTuple):
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def batch_of(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    value: bytes = b"value",
    producer: ProducerFields | None = None,
    transactional: bool = False,
    codec: int = 0,
) -> bytearray:
    """A batch as a producer sends it; its records are one ms apart."""
    records = [Record(i, timestamp + i, f"key-{i}".encode(), value) for i in range(count)]
    fields = producer or ProducerFields()
    return build_batch(
        records,
        codec=codec,
        producer_id=fields.producer_id,
        producer_epoch=fields.producer_epoch,
        base_sequence=fields.base_sequence,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
    )


def marker_of(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0, timestamp: int = NOW_MS
) -> bytearray:
    """A control batch that ends a transaction, as a coordinator writes it."""
    key = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")
    value = b"\x00\x00" + coordinator_epoch.to_bytes(4, "big")
    return build_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
    )


def open_log(disk: Disk, directory: str, *, clean: bool = True, **options: Any) -> PartitionLog:
    options = {"config": TopicConfig(), "files": OpenFiles(disk, 64), "now_ms": NOW_MS, "tp": TP, **options}
    return PartitionLog.open(directory, disk=disk, clean=clean, **options)


def append(log: PartitionLog, batch: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    return log.append(memoryview(batch), read_header(batch), leader_epoch, now_ms)


async def sync_and_mark(log: PartitionLog, target: int) -> None:
    """What `Flushes.sync` does where nothing fails."""
    log.sync_until(target)
    log.mark_flushed(target)


def read_bytes(slice_: FileSlice | None) -> bytes:
    return b"" if slice_ is None else slice_.file.pread(slice_.length, slice_.position)


def read_headers(slice_: FileSlice | None) -> list[BatchHeader]:
    return [header for _, header in iterate(read_bytes(slice_))]


def read_all(log: PartitionLog, max_bytes: int = 1 << 20) -> list[bytes]:
    """Every batch from the start to the end, as a consumer fetches them."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read_bytes(log.read(offset, max_bytes, log.log_end_offset, True))
        whole = [(position, header) for position, header in iterate(data) if header.last_offset >= offset]
        if not whole:
            break
        batches += [data[position : position + header.size] for position, header in whole]
        offset = whole[-1][1].last_offset + 1
    return batches


def check_indexes(log: PartitionLog) -> None:
    """Every index entry must point at the batch it claims to, and the time index must tell the largest timestamp."""
    for segment in log.segments:
        file = segment.log.get()
        batches = [(position, header) for position, header in iterate(file.pread(segment.size, 0))]
        by_position = dict(batches)
        for key, position in segment.indexes.offsets.entries():
            assert by_position[position].last_offset == segment.base_offset + key
        largest = -1
        first_with: dict[int, int] = {}
        for _, header in batches:
            if header.max_timestamp > largest:
                largest = header.max_timestamp
                first_with[largest] = header.last_offset
        for timestamp, offset in segment.indexes.times.entries():
            assert first_with[timestamp] == segment.base_offset + offset
        assert segment.max_timestamp == largest
