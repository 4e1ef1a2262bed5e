"""Who goes on where a read has ended gets what anybody gets there, whatever has become of the log meanwhile."""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.log.partition_log import PartitionLog
from ottla.log.reading_place import ReadingPlace
from ottla.model.chunks import FileSlice
from ottla.model.configs.resolve import TopicConfig
from ottla.wire.batch import iterate
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of, open_log, read_bytes


def log_of(config: TopicConfig | None = None) -> PartitionLog:
    disk = CrashDisk()
    disk.makedirs("/data")
    return open_log(disk, "/data/orders-3", config=config or TopicConfig())


def show(records: FileSlice | None) -> bool:
    """Do as a connection does that copies a slice on its way; whether somebody wanted to see it."""
    if records is None or records.shown is None:
        return False
    records.shown(records, memoryview(bytearray(read_bytes(records))))
    return True


def after(records: FileSlice, offset: int) -> int:
    """Where a consumer goes on."""
    return max((header.last_offset + 1 for _, header in iterate(read_bytes(records))), default=offset)


def test_who_reads_on_is_where_it_was_without_a_look_at_the_file() -> None:
    log = log_of()
    for _ in range(200):
        append(log, batch_of(2, value=bytes(1000)))
    place, offset, known = ReadingPlace(), 0, 0
    for _ in range(20):
        known += place.first_offset <= offset <= place.last_offset
        records = log.read_on(place, offset, 8000, log.log_end_offset)
        assert records is not None
        assert records[:3] == log.read(offset, 8000, log.log_end_offset, True)[:3]  # type: ignore[index]
        assert show(records)
        offset = after(records, offset)
    assert known == 19


def test_what_another_read_was_shown_is_not_taken_for_the_last_one() -> None:
    log = log_of()
    for _ in range(200):
        append(log, batch_of(2, value=bytes(1000)))
    place = ReadingPlace()
    first = log.read_on(place, 0, 8000, log.log_end_offset)
    log.read_on(place, 40, 8000, log.log_end_offset)
    show(first)
    assert place.last_offset < place.first_offset


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=29398015)
def test_reading_on_gives_what_reading_gives(seed: int) -> None:
    rng = random.Random(seed)
    log = log_of(
        TopicConfig(segment_bytes=rng.choice([5000, 100_000]), index_interval_bytes=rng.choice([1, 300, 4096]))
    )
    place, offset, value_bytes = ReadingPlace(), 0, rng.choice([10, 300, 900])
    for _ in range(300):
        action = rng.random()
        if action < 0.6:
            append(log, batch_of(rng.randint(1, 4), value=bytes(rng.randint(0, value_bytes))))
        elif action < 0.63:
            log.roll(NOW_MS)
        elif action < 0.65:
            log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset), NOW_MS)
        elif action < 0.67:
            log.delete_records_before(rng.randint(log.log_start_offset, log.log_end_offset))
            log.drop_segments(log.segments[: rng.randint(0, 1)] if len(log.segments) > 1 else [])
        elif action < 0.69:
            offset = rng.randint(log.log_start_offset, log.log_end_offset)
        else:
            offset = min(max(offset, log.log_start_offset), log.log_end_offset)
            max_bytes, max_offset = rng.choice([1, 700, 2000, 20_000]), log.log_end_offset - rng.choice([0, 0, 3])
            records = log.read_on(place, offset, max_bytes, max_offset)
            plain = log.read(offset, max_bytes, max_offset, True)
            assert (records and records[:3]) == (plain and plain[:3])
            if records is not None:
                if rng.random() < 0.9:
                    show(records)
                offset = after(records, offset)
