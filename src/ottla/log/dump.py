"""Looking at the batches of a segment's file, for `ottla log dump` and whoever wants to know what a file holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.log.disk import Disk, File
from ottla.log.scan import TornBatchError, walk
from ottla.wire.batch import BatchHeader, crc_matches

ROOM_BYTES_MAX: Final = 1 << 20
"""More zeros than this are not room (`log.room`), whoever wrote them."""


class DumpedBatch(NamedTuple):
    """A batch as it lies in the file."""

    position: int
    header: BatchHeader
    valid_crc: bool


def dump(disk: Disk, path: str) -> Iterator[DumpedBatch]:
    """Every batch from the beginning on; TornBatchError says where and why there are no more before the file ends.

    Zeros at the end are none: there a broker that runs has room for what comes next.
    """
    file = disk.open(path, write=False)
    try:
        for position, header in walk(file, 0, file.size()):
            yield DumpedBatch(position, header, crc_matches(memoryview(read_batch(file, position, header)), header))
    except TornBatchError as torn:
        if any(file.pread(ROOM_BYTES_MAX, torn.position)) or file.size() - torn.position > ROOM_BYTES_MAX:
            raise


def read_batch(file: File, position: int, header: BatchHeader) -> bytes:
    """The bytes of one batch, for `wire.records`."""
    return file.pread(header.size, position)
