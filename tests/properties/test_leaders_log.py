"""A leader's log, whatever its keepers do to it: nobody misses a key, a sequence or the end of a transaction.

Producers write in and out of transactions, records have times in any order or none; segments are rolled, synced,
compacted, dropped; indexes and snapshots are lost or cut between two starts; the process stops, dies, or the power
fails between any two changes of the disk. A list of all batches that were ever written says what must be found.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.compaction_plan import dirtiness_of, plan_round
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.model.configs.resolve import TopicConfig
from ottla.runtime.compaction_round import compact_log
from ottla.runtime.record_inline import InlineRecordWork
from ottla.wire.batch import TRANSACTIONAL_BIT, read_header
from ottla.wire.records import Record, build_batch
from ottla.wire.records import iterate as iterate_records
from tests.properties.committed_reader import read_committed
from tests.properties.log_expectations import check_log, replayed
from tests.properties.log_life import DIRECTORY, LogLife, Steps
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.files_of_batches import view_of
from tests.unit.log.support import NOW_MS, append, marker_of, read_all, sync_and_mark
from tests.unit.runtime.metadata import Inline

TRANSACTIONAL = (3, 4)
"""Producers that write in transactions."""
DAMAGED = (".index", ".timeindex", ".snapshot")


class Leader(LogLife):
    """A log, all that was ever written to it, and what the broker has stored of it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.config = TopicConfig(
            segment_bytes=rng.choice([2000, 4000, 9000]),
            index_interval_bytes=rng.choice([1, 100, 500, 4096]),
            segment_ms=rng.choice([50, 1 << 40]),
            cleanup_compact=rng.random() < 0.7,
            cleanup_delete=rng.random() < 0.3,
            retention_bytes=rng.choice([-1, 5000]),
            delete_retention_ms=10,
        )
        self.disk = CrashDisk(rng.choice([0, 8, 40, 500]))
        self.written: list[bytes] = []
        self.start_max = self.synced = self.stored_point = self.stored_start = 0
        self.cleaned: int | None = None
        self.dropped: list[Segment] = []
        self.now_ms = NOW_MS
        self.disk.makedirs("/data")
        self.disk.sync_dir("/")
        self.log = self._open(clean=False)

    def _open(self, *, clean: bool) -> PartitionLog:
        self.dropped = []
        return super()._open(clean=clean)

    # -- what happens to it

    def append(self) -> None:
        rng = self.rng
        known = {producer.producer_id: producer for producer in self.log.producers.active_producers()}
        producer_id, count = rng.choice([-1, 1, *TRANSACTIONAL]), rng.randint(1, 4)
        times = [self.now_ms + rng.randint(-100, 100) for _ in range(count)]
        if producer_id < 0 and rng.random() < 0.4:
            times = [-1] * count
        values = [rng.choice([None, rng.randbytes(rng.choice([1, 60, 300]))]) for _ in times]
        self._write(
            build_batch(
                [
                    Record(index, time, b"k%d" % rng.randrange(8), value)
                    for index, (time, value) in enumerate(zip(times, values, strict=True))
                ],
                codec=rng.randint(0, 4),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=known[producer_id].next_sequence if producer_id in known else min(producer_id, 0),
                attributes=TRANSACTIONAL_BIT if producer_id in TRANSACTIONAL else 0,
            )
        )

    def end_transaction(self) -> None:
        self._write(marker_of(self.rng.choice(TRANSACTIONAL), 0, commit=self.rng.random() < 0.6))

    def _write(self, batch: bytearray) -> None:
        batch[:8] = self.log.log_end_offset.to_bytes(8, "big")
        self.written.append(bytes(batch))
        append(self.log, batch, now_ms=self.now_ms)
        self.written[-1] = bytes(batch)

    def sync(self) -> None:
        target = self.log.flush_target(sealed_only=self.rng.random() < 0.5)
        self.log.sync_until(target)
        self.synced = max(self.synced, target)
        self.log.mark_flushed(target)
        if self.rng.random() < 0.7:
            self.stored_point, self.stored_start = self.log.recovery_point, self.log.log_start_offset

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def wait(self) -> None:
        self.now_ms += self.rng.choice([1, 20, 100])

    def compact(self) -> None:
        log = self.log
        if not self.config.cleanup_compact:
            return
        stable = log.producers.last_stable_offset(log.log_end_offset)
        dirtiness = dirtiness_of(log, checkpoint=self.cleaned, last_stable_offset=stable, now_ms=self.now_ms)
        if dirtiness.dirty_bytes:
            job = plan_round(log, self.disk, dirtiness, now_ms=self.now_ms, seed=5)
            work = InlineRecordWork(self.disk)
            done = asyncio.run(
                compact_log(
                    log, job, work, disk=self.disk, offload=Inline(), sync=sync_and_mark, discard=self.dropped.extend
                )
            )
            self.cleaned = done.first_dirty_offset
            self.synced = log.log_end_offset
            self.check()

    def retain(self) -> None:
        candidates = self.log.retention_candidates(self.now_ms)
        if candidates:
            self.start_max = self.stored_start = self.log.segments[len(candidates)].base_offset
            self.dropped += self.log.drop_segments(candidates)

    def delete_records(self) -> None:
        self.start_max = self.stored_start = self.rng.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.dropped += self.log.delete_records_before(self.start_max)

    def delete_files(self) -> None:
        dropped, self.dropped = self.dropped, []
        self.log.delete_files(dropped)

    def restart_cleanly(self) -> None:
        self.log.close()
        self.stored_point, self.stored_start = self.log.recovery_point, self.log.log_start_offset
        self.synced = self.log.log_end_offset
        if self.rng.random() < 0.5:
            # Not the broker's doing, so no power fails in the midst of it.
            changes_left, self.disk.changes_left = self.disk.changes_left, None
            self._damage()
            self.disk.changes_left = changes_left
        self._reopen(clean=True)

    def _damage(self) -> None:
        """Somebody removes, empties or cuts what can be made anew."""
        paths = [f"{DIRECTORY}/{name}" for name in self.disk.listdir(DIRECTORY) if name.endswith(DAMAGED)]
        for path in self.rng.sample(paths, min(len(paths), self.rng.randint(1, 3))):
            kind = self.rng.choice(["lost", "emptied", "cut"])
            if kind == "lost" and not path.endswith(".snapshot"):
                self.disk.remove(path)
            else:
                file = self.disk.open(path)
                file.truncate(0 if kind == "emptied" else max(file.size() - 1, 0))
                file.sync()
        self.disk.sync_dir(DIRECTORY)

    def die(self) -> None:
        self._reopen(clean=False)

    def _reopen(self, *, clean: bool) -> None:
        end = self.log.log_end_offset
        self.log = self._open(clean=clean)
        assert self.log.log_end_offset == end
        self.check()

    def steps(self) -> Steps:
        return [
            (self.append, 20),
            (self.end_transaction, 6),
            (self.sync, 3),
            (self.roll, 2),
            (self.wait, 4),
            (self.compact, 3),
            (self.retain, 1),
            (self.delete_records, 0.2),
            (self.delete_files, 2),
            (self.restart_cleanly, 1),
            (self.die, 1),
        ]

    # -- the power

    def crash(self) -> None:
        self.disk = self.disk.crash(self.rng, names_in_order=self.rng.random() < 0.5)
        self.log = self._open(clean=False)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        assert end >= self.synced
        if self.synced <= self.stored_start:
            # A directory that forgets an older name and keeps a younger one may lose what was never synced.
            self.start_max = max(self.start_max, start)
        self.written = [batch for batch in self.written if read_header(batch).last_offset < end]
        self.check()

    # -- what must hold

    def check(self) -> None:
        log = self.log
        assert self.stored_start <= log.log_start_offset <= max(self.start_max, self.stored_start)
        kept = read_all(log)
        check_log(log, kept, self.rng, has_youngest=not self.config.cleanup_compact)
        known = {
            record.offset: (record.key, record.value) for batch in self.written for record in iterate_records(batch)
        }
        for record in (record for batch in kept for record in iterate_records(batch)):
            assert known[record.offset] == (record.key, record.value)
        if log.log_start_offset == 0:
            self._check_whole(log, kept)

    def _check_whole(self, log: PartitionLog, kept: list[bytes]) -> None:
        if not self.config.cleanup_compact:
            assert kept == self.written
        expected, aborted = replayed(self.written)
        stable = expected.last_stable_offset(log.log_end_offset)
        assert log.producers.last_stable_offset(log.log_end_offset) == stable
        found = {producer.producer_id: producer.next_sequence for producer in log.producers.active_producers()}
        assert found == {producer.producer_id: producer.next_sequence for producer in expected.active_producers()}
        hidden = {
            read_header(batch).base_offset
            for batch in self.written
            for entry in aborted
            if entry.producer_id == read_header(batch).producer_id
            and entry.first_offset <= read_header(batch).base_offset < entry.last_offset
        }
        wanted = [
            record
            for batch in self.written
            if (header := read_header(batch)).last_offset < stable
            and header.base_offset not in hidden
            and not header.is_control
            for record in iterate_records(batch)
        ]
        assert view_of(read_committed(log, stable, self.rng.choice([1, 400, 1 << 20]))) == view_of(wanted)


@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32))
def test_a_leaders_log_loses_no_key_and_no_sequence(seed: int) -> None:
    rng = random.Random(seed)
    leader = Leader(rng)
    for _ in range(rng.randint(1, 3)):
        leader.live(rng.randint(0, 250))
        leader.crash()
    for _ in range(5):
        leader.append()
    leader.check()
