"""`preallocate`: the room of a segment is taken when it is begun, and what was not needed is given back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.log import disk
from ottla.log.disk import RealDisk
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import OttlaError
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import append, batch_of, open_log, read_all

SEGMENT_BYTES = 1 << 20
CONFIG = TopicConfig(preallocate=True, segment_bytes=SEGMENT_BYTES)
FULL = OSError(errno.ENOSPC, "No space left on device")


def room(directory: Path, base_offset: int = 0) -> tuple[int, int]:
    """Of the log's file: how long it is, and how much of the disk it has."""
    seen = os.stat(directory / f"{base_offset:020d}.log")
    return seen.st_size, seen.st_blocks * 512


@pytest.mark.usefixtures("can_reserve")
def test_the_room_is_there_from_the_beginning_and_goes_back_in_the_end(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    directory.mkdir()
    log = open_log(RealDisk(), str(directory), config=CONFIG)
    size, taken = room(directory)
    assert size == 0
    assert taken >= SEGMENT_BYTES
    batch = batch_of(3)
    append(log, batch)
    size, taken = room(directory)
    assert size == len(batch)
    assert taken >= SEGMENT_BYTES
    log.roll(1)
    assert room(directory)[1] < SEGMENT_BYTES // 2
    assert room(directory, 3)[1] >= SEGMENT_BYTES
    before = read_all(log)
    log.close()
    assert room(directory, 3) == (0, 0)
    again = open_log(RealDisk(), str(directory), config=CONFIG)
    assert read_all(again) == before
    again.close()


def test_without_it_nothing_is_taken(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path), config=TopicConfig())
    assert room(tmp_path) == (0, 0)
    log.close()


def test_a_full_disk_is_noticed_before_a_segment_is_begun() -> None:
    crash_disk = CrashDisk()
    crash_disk.makedirs("/data/orders-3")
    log = open_log(crash_disk, "/data/orders-3", config=CONFIG)
    append(log, batch_of(1))
    crash_disk.fail_writes = lambda size: FULL if size >= SEGMENT_BYTES else None
    with pytest.raises(OttlaError, match=r"full|space"):
        log.roll(1)
    append(log, batch_of(1))
    assert [segment.base_offset for segment in log.segments] == [0]
    crash_disk.fail_writes = lambda size: None
    log.roll(2)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert len(read_all(log)) == 2


def test_where_nothing_can_be_reserved_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_fallocate", lambda: lambda fd, mode, start, length: errno.EOPNOTSUPP)
    log = open_log(RealDisk(), str(tmp_path), config=CONFIG)
    assert room(tmp_path) == (0, 0)
    log.close()


def test_an_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_fallocate", lambda: lambda fd, mode, start, length: errno.ENOSPC)
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    with pytest.raises(OSError, match="No space left") as raised:
        file.reserve(0, 10)
    assert raised.value.filename == str(tmp_path / "a")
