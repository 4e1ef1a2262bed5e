"""Looking at the batches of a segment's file, for `ottla log dump` and whoever wants to know what a file holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.disk import Disk, File
from ottla.log.scan import walk
from ottla.wire.batch import BatchHeader, crc_matches


class DumpedBatch(NamedTuple):
    """A batch as it lies in the file."""

    position: int
    header: BatchHeader
    valid_crc: bool


def dump(disk: Disk, path: str) -> Iterator[DumpedBatch]:
    """Every batch from the beginning on; TornBatchError says where and why there are no more before the file ends."""
    file = disk.open(path, write=False)
    for position, header in walk(file, 0, file.size()):
        yield DumpedBatch(position, header, crc_matches(memoryview(read_batch(file, position, header)), header))


def read_batch(file: File, position: int, header: BatchHeader) -> bytes:
    """The bytes of one batch, for `wire.records`."""
    return file.pread(header.size, position)
