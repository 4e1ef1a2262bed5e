"""What a crash may not take: all that was synced, in order, with indexes, producers, transactions and epochs."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.partition_log import PartitionLog
from ottla.log.producer_replay import replay
from ottla.log.producer_state import ProducerStates
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError
from ottla.wire.batch import read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import (
    NOW_MS,
    ProducerFields,
    append,
    batch_of,
    check_indexes,
    marker_of,
    open_log,
    read_all,
)

DIRECTORY = "/data/orders-3"
TRANSACTIONAL = (3, 4)
"""Producers that write in transactions."""


def tiny_config(rng: random.Random) -> TopicConfig:
    return TopicConfig(
        segment_bytes=rng.choice([600, 1000, 3000, 20_000]),
        index_interval_bytes=rng.choice([1, 100, 500, 4096]),
        cleanup_compact=rng.random() < 0.2,
    )


class Writer:
    """Drives a log and remembers what it was told and promised."""

    def __init__(self, disk: CrashDisk, rng: random.Random) -> None:
        self.disk = disk
        self.rng = rng
        self.config = tiny_config(rng)
        self.batches: list[bytes] = []
        self.start = self.synced = 0
        self.checkpoint = 0
        self.start_checkpoint = 0
        self.epoch = 0
        self.sequences = dict.fromkeys((1, 2, *TRANSACTIONAL), 0)
        disk.makedirs("/data")
        disk.sync_dir("/")
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> PartitionLog:
        return open_log(
            self.disk,
            DIRECTORY,
            clean=clean,
            config=self.config,
            recovery_point=self.checkpoint,
            log_start_offset=self.start_checkpoint,
        )

    def append(self) -> None:
        count = self.rng.randint(1, 5)
        producer_id = self.rng.choice([None, *self.sequences])
        fields = None
        if producer_id is not None:
            if producer_id in TRANSACTIONAL:
                # A restart with nothing in the log forgets it, and then a marker makes it known without a sequence.
                known = {producer.producer_id: producer for producer in self.log.producers.active_producers()}
                self.sequences[producer_id] = known[producer_id].next_sequence if producer_id in known else 0
            fields = ProducerFields(producer_id, 0, self.sequences[producer_id])
            self.sequences[producer_id] += count
        value = self.rng.randbytes(self.rng.choice([0, 3, 60]))
        timestamp = NOW_MS + self.rng.randint(-5, 200) + self.log.log_end_offset
        is_transactional = producer_id in TRANSACTIONAL
        batch = batch_of(count, timestamp=timestamp, value=value, producer=fields, transactional=is_transactional)
        append(self.log, batch, leader_epoch=self.epoch)
        self.batches.append(bytes(batch))

    def end_transaction(self) -> None:
        batch = marker_of(self.rng.choice(TRANSACTIONAL), 0, commit=self.rng.random() < 0.4)
        append(self.log, batch, leader_epoch=self.epoch)
        self.batches.append(bytes(batch))

    def sync(self) -> None:
        target = self.log.flush_target(sealed_only=self.rng.random() < 0.5)
        self.log.sync_until(target)
        self.log.mark_flushed(target)
        self.synced = max(self.synced, target)
        if self.rng.random() < 0.7:
            self.checkpoint = self.log.recovery_point

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def fill_disk(self) -> None:
        """The next few writes fail half way; the log must be as if they had never been tried."""
        self.disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
        sequences, end = dict(self.sequences), self.log.log_end_offset
        with pytest.raises(ApiError, match="no space left"):
            self.rng.choice([self.append, self.end_transaction])()
        assert self.log.log_end_offset == end
        self.sequences = sequences
        self.disk.fail_writes = lambda size: None

    def delete_records(self) -> None:
        dropped = self.log.delete_records_before(self.rng.randint(self.log.log_start_offset, self.log.log_end_offset))
        self.start_checkpoint = self.start = self.log.log_start_offset
        self.log.delete_files(dropped)

    def new_epoch(self) -> None:
        self.epoch += 1

    def restart_cleanly(self) -> None:
        self.log.close()
        self.synced = self.log.log_end_offset
        self.checkpoint = self.log.recovery_point
        self.log = self.open(clean=True)

    def step(self) -> None:
        steps: list[tuple[Callable[[], None], float]] = [
            (self.append, 20),
            (self.end_transaction, 5),
            (self.sync, 3),
            (self.roll, 2),
            (self.new_epoch, 1),
            (self.restart_cleanly, 1),
            (self.fill_disk, 0.3),
            (self.delete_records, 0.2),
        ]
        self.rng.choices([step for step, _ in steps], weights=[weight for _, weight in steps])[0]()

    def crash(self, *, names_in_order: bool = True) -> None:
        self.disk = self.disk.crash(self.rng, names_in_order=names_in_order)
        self.log = self.open(clean=False)
        self.check()
        kept = read_all(self.log)
        self.batches = kept
        self.sequences = dict.fromkeys(self.sequences, 0)
        for producer in self.log.producers.active_producers():
            self.sequences[producer.producer_id] = producer.next_sequence

    def check(self) -> None:
        kept = read_all(self.log)
        start = self.log.log_start_offset
        # A directory that forgets an older name and keeps a younger one may lose the beginning of what was not synced.
        assert start == self.start or self.synced == 0
        self.start = start
        expected = [batch for batch in self.batches if read_header(batch).last_offset >= start]
        assert kept == expected[: len(kept)]
        assert self.log.log_end_offset >= self.synced
        end = read_header(kept[-1]).last_offset + 1 if kept else start
        assert self.log.log_end_offset == end
        assert self.log.recovery_point <= end
        check_indexes(self.log)
        if start == 0:
            self.check_producers(kept)
        self.check_epochs(kept)

    def check_producers(self, kept: list[bytes]) -> None:
        expected = ProducerStates()
        aborted = []
        for batch in kept:
            completed = replay(expected, read_header(batch), partial(bytes, batch))
            if completed is not None and completed.aborted:
                aborted.append(expected.index_entry_of(completed))
        assert sorted(self.log.producers.to_snapshot()) == sorted(expected.to_snapshot())
        end = self.log.log_end_offset
        assert self.log.producers.last_stable_offset(end) == expected.last_stable_offset(end)
        indexes = [segment.transactions for segment in self.log.segments if segment.transactions is not None]
        assert [entry for index in indexes for entry in index.entries()] == aborted
        assert self.log.aborted_transactions(0, end) == aborted

    def check_epochs(self, kept: list[bytes]) -> None:
        for header in map(read_header, kept):
            first_offset = max(header.base_offset, self.start)
            assert self.log.epochs.epoch_of(first_offset) == header.partition_leader_epoch


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), names_in_order=st.booleans())
def test_what_was_synced_survives_any_crash(seed: int, names_in_order: bool) -> None:
    rng = random.Random(seed)
    writer = Writer(CrashDisk(rng.choice([0, 8, 40])), rng)
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(0, 40)):
            writer.step()
        writer.crash(names_in_order=names_in_order)
        # A second start without anything in between finds the same.
        ends_at = writer.log.log_end_offset
        writer.log = writer.open(clean=False)
        assert writer.log.log_end_offset == ends_at
    for _ in range(5):
        writer.append()
    writer.check()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_crash_during_recovery_loses_nothing_more(seed: int) -> None:
    rng = random.Random(seed)
    writer = Writer(CrashDisk(rng.choice([0, 8, 40])), rng)
    for _ in range(rng.randint(10, 60)):
        writer.step()
    for _ in range(3):
        writer.disk = writer.disk.crash(rng)
        writer.log = writer.open(clean=False)
    writer.check()


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_stop_loses_nothing_even_if_the_power_goes_right_after(seed: int) -> None:
    rng = random.Random(seed)
    writer = Writer(CrashDisk(rng.choice([0, 8, 40])), rng)
    for _ in range(60):
        writer.step()
    writer.log.close()
    disk = writer.disk.crash(rng, names_in_order=False)
    log = open_log(disk, DIRECTORY, clean=True, config=writer.config, log_start_offset=writer.start_checkpoint)
    assert read_all(log) == [batch for batch in writer.batches if read_header(batch).last_offset >= writer.start]
    check_indexes(log)
