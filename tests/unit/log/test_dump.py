"""Looking into a segment shows every batch, and where the file stops making sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.disk import RealDisk
from ottla.log.dump import DumpedBatch, dump, read_batch
from ottla.log.scan import TornBatchError
from ottla.wire.records import iterate
from tests.unit.log.support import append, batch_of, open_log


def test_batches_damage_and_the_torn_end_are_shown(tmp_path: Path) -> None:
    disk = RealDisk()
    log = open_log(disk, str(tmp_path / "orders-3"))
    for count in (1, 2, 3):
        append(log, batch_of(count))
    log.close()
    path = tmp_path / "orders-3" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    second = len(batch_of(1))
    content[second + 80] ^= 1
    path.write_bytes(content + b"torn")
    batches: list[DumpedBatch] = []
    with pytest.raises(TornBatchError, match="4 bytes are left"):
        batches.extend(dump(disk, str(path)))
    batches = []
    for batch in dump(disk, str(path)):
        batches.append(batch)
        if len(batches) == 3:
            break
    assert [(batch.position, batch.header.base_offset, batch.valid_crc) for batch in batches] == [
        (0, 0, True),
        (second, 1, False),
        (second + len(batch_of(2)), 3, True),
    ]
    last = batches[-1]
    records = iterate(read_batch(disk.open(str(path)), last.position, last.header))
    assert [record.offset for record in records] == [3, 4, 5]
