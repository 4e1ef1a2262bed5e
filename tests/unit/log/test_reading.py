"""Consumers get every record, once, in order, wherever they begin and however much they ask for."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import iterate, read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of, check_indexes, open_log, read_all, read_bytes, read_headers

DIRECTORY = "/data/orders-3"


def memory_log(config: TopicConfig | None = None) -> tuple[CrashDisk, PartitionLog]:
    disk = CrashDisk()
    disk.makedirs("/data")
    return disk, open_log(disk, DIRECTORY, config=config or TopicConfig())


@dataclass
class Model:
    """The batches that a log should hold."""

    batches: list[bytes] = field(default_factory=list)
    last_offsets: list[int] = field(default_factory=list)

    def add(self, batch: bytes) -> None:
        self.batches.append(batch)
        self.last_offsets.append(read_header(batch).last_offset)

    def from_offset(self, offset: int) -> list[bytes]:
        return self.batches[bisect_left(self.last_offsets, offset) :]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_log_reads_back_what_was_written_at_any_offset_and_size(seed: int) -> None:
    rng = random.Random(seed)
    config = TopicConfig(
        segment_bytes=rng.choice([500, 2000, 100_000]), index_interval_bytes=rng.choice([1, 200, 1000, 4096])
    )
    disk, log = memory_log(config)
    model = Model()
    for _ in range(rng.randint(1, 150)):
        action = rng.random()
        if action < 0.9:
            batch = batch_of(rng.randint(1, 4), timestamp=NOW_MS + rng.randint(0, 9), value=bytes(rng.randint(0, 80)))
            append(log, batch)
            model.add(bytes(batch))
        elif action < 0.95:
            log.roll(NOW_MS)
        else:
            log.close()
            log = open_log(disk, DIRECTORY, config=config)
    assert read_all(log, 1) == model.batches
    assert read_all(log) == model.batches
    check_indexes(log)
    for _ in range(30):
        check_read(log, model, rng)


def check_read(log: PartitionLog, model: Model, rng: random.Random) -> None:
    boundaries = [0, *[last + 1 for last in model.last_offsets]]
    offset = rng.randint(0, log.log_end_offset)
    max_offset = rng.choice(boundaries)
    max_bytes = rng.choice([0, 1, 61, 100, 500, 5000])
    at_least_one = rng.random() < 0.7
    data = read_bytes(log.read(offset, max_bytes, max_offset, at_least_one))
    visible = [batch for batch in model.from_offset(offset) if read_header(batch).last_offset < max_offset]
    whole = b"".join(visible)
    assert whole.startswith(data)
    if not visible:
        assert data == b""
    elif len(visible[0]) > max_bytes:
        assert data == (visible[0] if at_least_one else b"")
    else:
        assert len(visible[0]) <= len(data) <= max_bytes
    available = log.bytes_available(offset, max_offset)
    assert (available > 0) == (offset < min(max_offset, log.log_end_offset))


def test_outside_of_the_log_there_is_an_error_and_at_its_end_nothing() -> None:
    _, log = memory_log()
    append(log, batch_of(3))
    assert log.read(3, 1000, 3, True) is None
    assert log.read(1, 1000, 0, True) is None
    assert log.read(3, 1000, 99, True) is None
    for offset in (-1, 4):
        with pytest.raises(ApiError) as error:
            log.read(offset, 1000, 3, True)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records_before(2)
    with pytest.raises(ApiError) as error:
        log.read(1, 1000, 3, True)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_at_the_end_reads_no_index_and_no_header() -> None:
    disk, log = memory_log()
    for _ in range(500):
        append(log, batch_of(1))
    disk.bytes_read = 0
    slice_ = log.read(499, 1000, 500, True)
    assert disk.bytes_read == 0
    assert [header.base_offset for header in read_headers(slice_)] == [499]


def test_a_reader_below_the_high_watermark_does_not_see_beyond_it() -> None:
    disk, log = memory_log()
    for _ in range(200):
        append(log, batch_of(2))
    for high_watermark in (400, 398, 350, 20):
        for offset in (0, 10, high_watermark - 2):
            headers = read_headers(log.read(offset, 1 << 20, high_watermark, True))
            assert headers[-1].last_offset == high_watermark - 1
    disk.bytes_read = 0
    log.read(396, 1 << 20, 398, True)
    assert disk.bytes_read == 0


def test_a_lookup_reads_little_of_a_large_segment() -> None:
    disk, log = memory_log()
    for _ in range(3000):
        append(log, batch_of(1, value=bytes(500)))
    log.roll(NOW_MS)
    log.read(10, 1000, 3000, True)
    disk.bytes_read = 0
    assert read_header(read_bytes(log.read(1500, 600, 3000, True))).base_offset == 1500
    assert disk.bytes_read < 20_000


def test_bytes_available_is_exact_near_the_end_and_close_elsewhere() -> None:
    _, log = memory_log(TopicConfig(segment_bytes=50_000))
    batch = len(batch_of(1, value=bytes(100)))
    for _ in range(1000):
        append(log, batch_of(1, value=bytes(100)))
    assert log.bytes_available(990, 1000) == 10 * batch
    assert log.bytes_available(990, 995) == 5 * batch
    assert log.bytes_available(1000, 1000) == 0
    assert abs(log.bytes_available(100, 1000) - 900 * batch) < 20 * batch
    assert abs(log.bytes_available(100, 500) - 400 * batch) < 20 * batch


def test_a_lying_index_costs_time_and_no_records() -> None:
    disk, log = memory_log(TopicConfig(index_interval_bytes=100))
    for _ in range(100):
        append(log, batch_of(1))
    log.roll(NOW_MS)
    index = disk.open(f"{DIRECTORY}/00000000000000000000.index")
    entries = bytearray(index.pread(index.size(), 0))
    for at in range(4, len(entries), 8):
        entries[at : at + 4] = (int.from_bytes(entries[at : at + 4], "big") + 1).to_bytes(4, "big")
    index.pwrite(bytes(entries), 0)
    assert [header.base_offset for header in read_headers(log.read(70, 1 << 20, 100, True))] == list(range(70, 100))
    # The file itself is left to recovery; what stands in for it is in memory.
    assert index.pread(index.size(), 0) == bytes(entries)
    assert log.segments[0].indexes.offsets.floor(99) is not None


def test_slices_may_be_read_after_their_segment_is_gone() -> None:
    _, log = memory_log()
    append(log, batch_of(3))
    log.roll(NOW_MS)
    slice_ = log.read(0, 1000, 3, True)
    log.delete_files(log.drop_segments(log.segments[:1]))
    assert [header.last_offset for header in read_headers(slice_)] == [2]


def test_every_batch_of_a_slice_is_whole_but_the_last() -> None:
    _, log = memory_log()
    for _ in range(20):
        append(log, batch_of(3))
    size = len(batch_of(3))
    data = read_bytes(log.read(0, 3 * size + 10, 60, True))
    assert len(data) == 3 * size + 10
    assert len(list(iterate(data))) == 3
