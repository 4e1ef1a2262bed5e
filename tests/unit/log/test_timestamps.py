"""Seeking by time finds the first record that is young enough, whatever order the times are in."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import timestamps
from ottla.log.partition_log import PartitionLog
from ottla.log.timestamps import BATCHES_MAX, TimestampedOffset
from ottla.model.configs.resolve import TopicConfig
from ottla.wire.batch import build, read_header
from ottla.wire.compression import Codec, compress
from ottla.wire.records import Record, build_batch, find_timestamp, iterate
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import append, batch_of, open_log, read_all

DIRECTORY = "/data/orders-3"


def memory_log(config: TopicConfig | None = None) -> tuple[CrashDisk, PartitionLog]:
    disk = CrashDisk()
    disk.makedirs("/data")
    return disk, open_log(disk, DIRECTORY, config=config or TopicConfig())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_first_record_that_is_young_enough_is_found(seed: int) -> None:
    rng = random.Random(seed)
    config = TopicConfig(segment_bytes=rng.choice([600, 3000, 50_000]), index_interval_bytes=rng.choice([1, 300, 4096]))
    disk, log = memory_log(config)
    for number in range(rng.randint(1, 80)):
        time = 1000 + number + rng.randint(-20, 20)
        codec = rng.choice([Codec.NONE, Codec.ZSTD])
        append(log, batch_of(rng.randint(1, 4), timestamp=time, codec=codec), leader_epoch=number // 30)
    if rng.random() < 0.5:
        log.close()
        log = open_log(disk, DIRECTORY, config=config)
    if rng.random() < 0.3:
        log.delete_records_before(rng.randint(0, log.log_end_offset // 2))
    records = [record for batch in read_all(log) for record in iterate(batch) if record.offset >= log.log_start_offset]
    for _ in range(20):
        timestamp = rng.randint(950, 1130)
        max_offset = rng.choice([log.log_end_offset, rng.randint(0, log.log_end_offset)])
        first = next((record for record in records if record.timestamp >= timestamp), None)
        expected = first if first is not None and first.offset < max_offset else None
        found = log.offset_for_timestamp(timestamp, max_offset)
        assert (found and found[:2]) == (expected and (expected.offset, expected.timestamp))
        assert found is None or found.leader_epoch == log.epochs.epoch_of(found.offset)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_youngest_record_is_found(seed: int) -> None:
    rng = random.Random(seed)
    _, log = memory_log(TopicConfig(segment_bytes=1500, index_interval_bytes=200))
    for _ in range(rng.randint(1, 60)):
        append(log, batch_of(rng.randint(1, 3), timestamp=rng.randint(1000, 1100)))
    records = [record for batch in read_all(log) for record in iterate(batch)]
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert found.timestamp == max(record.timestamp for record in records)
    assert (found.offset, found.timestamp) in {(record.offset, record.timestamp) for record in records}


def test_a_log_without_times_has_no_answer() -> None:
    _, log = memory_log()
    assert log.offset_for_timestamp(5, 10) is None
    assert log.offset_of_max_timestamp() is None
    append(log, batch_of(1, timestamp=-1))
    assert log.offset_for_timestamp(5, 10) is None
    assert log.offset_of_max_timestamp() is None


def test_where_compaction_has_emptied_the_youngest_batch_there_is_no_answer_as_in_kafka() -> None:
    """Kafka looks into the first batch whose header has the largest time, and into no other."""
    _, log = memory_log()
    append(log, batch_of(1, timestamp=1000))
    append(log, build(b"", 0, 0, -1, 2000, 0))
    assert log.offset_of_max_timestamp() is None
    append(log, batch_of(1, timestamp=3000))
    assert log.offset_of_max_timestamp() == TimestampedOffset(2, 3000, 0)


def test_times_of_the_broker_are_those_of_the_batch() -> None:
    _, log = memory_log(TopicConfig(timestamp_type_log_append=True))
    append(log, batch_of(3, timestamp=1), now_ms=5000)
    append(log, batch_of(3, timestamp=1), now_ms=6000)
    assert log.offset_for_timestamp(5001, 6) == TimestampedOffset(3, 6000, 0)


def repeated(count: int, *, timestamp: int, claimed: int) -> bytearray:
    """A batch of so many small records, all of one time, whose header claims that the youngest is of another."""
    body = compress(Codec.ZSTD, b"\x0c\x00\x00\x00\x01\x01\x00" * count)
    return build(body, Codec.ZSTD, count - 1, timestamp, claimed, count)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each batch has that lookups look into from now on."""
    looked: list[int] = []

    def find(batch: bytes, timestamp: int, **limits: int) -> tuple[int, int] | None:
        looked.append(read_header(batch).record_count)
        return find_timestamp(batch, timestamp, **limits)

    monkeypatch.setattr(timestamps, "find_timestamp", find)
    return looked


def test_a_few_bytes_that_stand_for_millions_of_records_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = memory_log()
    append(log, batch_of(1, timestamp=900))
    append(log, repeated(3_000_000, timestamp=1000, claimed=2000))
    looked = counted(monkeypatch)
    assert log.offset_for_timestamp(1500, log.log_end_offset) == TimestampedOffset(1, 2000, 0)
    log.delete_records_before(5)
    assert log.offset_for_timestamp(1500, log.log_end_offset) == TimestampedOffset(5, 2000, 0)
    assert looked == []
    assert log.offset_of_max_timestamp() == TimestampedOffset(1, 2000, 0)


def test_headers_that_lie_do_not_make_a_lookup_read_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = memory_log()
    for _ in range(100):
        append(log, repeated(10, timestamp=1000, claimed=2000))
    looked = counted(monkeypatch)
    assert log.offset_for_timestamp(1500, log.log_end_offset) == TimestampedOffset(10 * BATCHES_MAX, 2000, 0)
    assert looked == [10] * BATCHES_MAX


def test_a_batch_that_is_none_inside_does_not_end_lookups_by_time() -> None:
    _, log = memory_log()
    append(log, build(b"nonsense", Codec.ZSTD, 9, 1000, 2000, 10))
    append(log, batch_of(1, timestamp=3000))
    assert log.offset_for_timestamp(1500, log.log_end_offset) == TimestampedOffset(0, 2000, 0)
    assert log.offset_for_timestamp(2500, log.log_end_offset) == TimestampedOffset(10, 3000, 0)


def test_where_the_log_begins_in_a_batch_the_records_before_do_not_count() -> None:
    _, log = memory_log()
    append(log, build_batch([Record(n, 1000 + n, None, b"v") for n in range(10)]))
    log.delete_records_before(4)
    assert log.offset_for_timestamp(1002, log.log_end_offset) == TimestampedOffset(4, 1004, 0)


def test_seeking_works_in_a_thread_while_the_log_grows_rolls_and_shrinks() -> None:
    """No lookup may fail or lie because the loop does its work at the same time."""
    _, log = memory_log(TopicConfig(segment_bytes=2000, index_interval_bytes=200))
    done = threading.Event()
    problems: list[BaseException] = []

    def seek() -> None:
        rng = random.Random(1)
        try:
            while not done.is_set():
                end = log.log_end_offset
                wanted = rng.randint(0, end + 5)
                found = log.offset_for_timestamp(wanted, end)
                # Record n has timestamp n, and the log may begin after it.
                assert found is None or found.offset == found.timestamp >= wanted
                log.sync_until(end)
                log.offset_of_max_timestamp()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=seek) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(4000):
            append(log, batch_of(1, timestamp=number))
            if number % 500 == 499:
                log.delete_files(log.delete_records_before(number - 200))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if problems:
        raise problems[0]
