"""A follower's log, whatever happens to it: it has a part of one history, and all of it that was synced.

Its leader sends batches with gaps between them, as compaction leaves them; logs part, and the follower goes back or
begins anew; segments are rolled, synced and dropped; the process stops, dies, or the power fails between any two
changes of the disk. A list of batches says what must be found.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.segment import Segment
from ottla.model.configs.resolve import TopicConfig
from ottla.wire.batch import TRANSACTIONAL_BIT, assign, read_header
from ottla.wire.records import Record, build_batch
from tests.properties.log_expectations import check_log, check_producers
from tests.properties.log_life import LogLife, Steps
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, marker_of

TRANSACTIONAL = (3, 4)
"""Producers that write in transactions."""
HUGE_GAP = range(2**31, 2**31 + 5)
"""No index spans it."""


class Follower(LogLife):
    """A log, what its leader sent, and what the broker has stored of it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.config = TopicConfig(
            segment_bytes=rng.choice([400, 1000, 3000, 20_000]),
            index_interval_bytes=rng.choice([1, 100, 500, 4096]),
            segment_index_bytes=rng.choice([60, 1200, 10 << 20]),
            segment_ms=rng.choice([50, 1 << 40]),
            cleanup_compact=rng.random() < 0.3,
        )
        self.disk = CrashDisk(rng.choice([0, 8, 40, 500]))
        self.batches: list[bytes] = []
        self.start = self.end = 0
        self.starts_max = 0
        """Where the log may begin after a crash, since that was asked for."""
        self.lost_beginning = False
        self.synced = self.stored_point = self.stored_start = 0
        self.dropped: list[Segment] = []
        self.epoch = 0
        self.sequences = dict.fromkeys((1, 2, *TRANSACTIONAL), 0)
        self.gap = rng.choice([range(1), range(1), range(1, 4), range(1, 50), HUGE_GAP])
        self.disk.makedirs("/data")
        self.disk.sync_dir("/")
        self.log = self._open(clean=False)

    # -- what its leader sends

    def _sent(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.3:
            self.end += rng.choice(self.gap)
        if rng.random() < 0.1:
            self.epoch += rng.randint(1, 2)
        batch = marker_of(rng.choice(TRANSACTIONAL), 0, commit=rng.random() < 0.4) if rng.random() < 0.2 else None
        batch = self._records() if batch is None else batch
        assign(memoryview(batch), 0, self.end, len(batch) - 12, self.epoch)
        self.end = read_header(batch).last_offset + 1
        return bytes(batch)

    def _records(self) -> bytearray:
        rng = self.rng
        count = rng.randint(1, 4)
        producer_id = rng.choice([-1, *self.sequences])
        around = NOW_MS + len(self.batches)
        times = [around + rng.randint(-100, 100) for _ in range(count)]
        if producer_id < 0 and rng.random() < 0.3:
            times = [-1] * count
        value = rng.randbytes(rng.choice([0, 3, 60, 600]))
        batch = build_batch(
            [Record(index, time, b"key-%d" % index, value) for index, time in enumerate(times)],
            codec=rng.randint(0, 4),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, -1),
            attributes=TRANSACTIONAL_BIT if producer_id in TRANSACTIONAL else 0,
        )
        if producer_id >= 0:
            self.sequences[producer_id] += count
        return batch

    # -- what happens to it

    def append(self) -> None:
        self.end = self.log.log_end_offset
        sent = [self._sent() for _ in range(self.rng.choice([1, 1, 2, 8]))]
        self.batches += sent
        rest = memoryview(b"".join(sent))
        while len(rest):
            rest = rest[self.log.append_as_follower(rest, NOW_MS, self.rng.choice([1, 3, 1 << 30])) :]

    def sync(self) -> None:
        target = self.log.flush_target(sealed_only=self.rng.random() < 0.5)
        self.log.sync_until(target)
        self.synced = max(self.synced, target)
        self.log.mark_flushed(target)
        if self.rng.random() < 0.7:
            self.stored_point = self.log.recovery_point
            self.stored_start = self.log.log_start_offset

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def cut(self) -> None:
        offset = self._somewhere()
        producers = self.log.producers_at(offset) if self.rng.random() < 0.7 else None
        self._lower(offset)
        self.dropped += self.log.truncate_to(offset, NOW_MS, producers)
        self.log.sync_truncation()
        self.batches = [batch for batch in self.batches if read_header(batch).last_offset < offset]
        self.start = self.log.log_start_offset
        self.stored_start = min(self.stored_start, self.start)

    def begin_anew(self) -> None:
        """At the leader's start, which is beyond the end, or below the start."""
        end = self.log.log_end_offset
        offset = self.rng.choice([end, end + 1, end + self.rng.randint(0, 100), self._somewhere()])
        self._lower(offset, anew=True)
        self.dropped += self.log.truncate_fully_and_start_at(offset, NOW_MS)
        self.log.sync_truncation()
        self.batches, self.start, self.lost_beginning = [], offset, False

    def _somewhere(self) -> int:
        known = self.rng.choice([self.log.log_end_offset, *(read_header(batch).base_offset for batch in self.batches)])
        # Below the start there may be records that were deleted; a crash around a cut there may bring them back.
        return max(known + self.rng.randint(-2, 2), self.start if self.lost_beginning else 0)

    def _lower(self, offset: int, *, anew: bool = False) -> None:
        """What is safe, as far as a cut will leave it; a crash from here on may undo it or not."""
        safe = self.log.safe_to_begin_anew(offset) if anew else self.log.safe_after_cut(offset)
        self.stored_point = min(self.stored_point, safe)
        self.stored_start = min(self.stored_start, offset)
        # Where all segments go, those that a crash brings back need not be the first ones, and there may be none.
        goes_all = anew or offset <= self.log.segments[0].base_offset
        self.synced = min(self.synced, self.stored_start if goes_all else safe)
        self.starts_max = max(self.starts_max, offset, self.log.log_end_offset if goes_all else 0)

    def delete_records(self) -> None:
        offset = min(self._somewhere(), self.log.log_end_offset)
        if offset > self.log.log_start_offset:
            self.lost_beginning, self.starts_max = True, max(self.starts_max, offset)
            self.stored_start = offset
            self.dropped += self.log.delete_records_before(offset)
            self.start = self.log.log_start_offset
            self.batches = [batch for batch in self.batches if read_header(batch).last_offset >= self.start]

    def delete_files(self) -> None:
        dropped, self.dropped = self.dropped, []
        self.log.delete_files(dropped)

    def restart_cleanly(self) -> None:
        self.log.close()
        self.stored_point, self.stored_start = self.log.recovery_point, self.log.log_start_offset
        self.synced = self.log.log_end_offset
        self.dropped = []
        self.log = self._open(clean=True)
        self.check()

    def die(self) -> None:
        """The process ends, and all that it wrote is there; but nobody has synced it."""
        self.dropped = []
        end = self.log.log_end_offset
        self.log = self._open(clean=False)
        assert self.log.log_end_offset == end
        self.check()

    def steps(self) -> Steps:
        return [
            (self.append, 20),
            (self.sync, 4),
            (self.roll, 2),
            (self.cut, 3),
            (self.begin_anew, 0.4),
            (self.delete_records, 0.5),
            (self.delete_files, 1),
            (self.restart_cleanly, 1),
            (self.die, 1),
        ]

    # -- the power

    def crash(self) -> None:
        self.disk = self.disk.crash(self.rng, names_in_order=self.rng.random() < 0.5)
        self.dropped = []
        self.log = self._open(clean=False)
        assert self.log.log_end_offset >= self.synced
        self._take_what_is_left()
        self.check()
        # A second start without anything in between finds the same.
        self.log = self._open(clean=False)
        self.check()

    def _take_what_is_left(self) -> None:
        """Of the past, a part from its beginning on; or nothing of it."""
        log = self.log
        if log.log_start_offset != self.start:
            # A directory that forgets an older name and keeps a younger one may lose what was never synced.
            assert log.log_start_offset <= self.starts_max or self.synced <= self.start
            self.start, self.lost_beginning = log.log_start_offset, True
        batches = [batch for batch in self.batches if read_header(batch).last_offset >= self.start]
        self.batches = [batch for batch in batches if read_header(batch).last_offset < log.log_end_offset]

    def check(self) -> None:
        log = self.log
        assert log.log_start_offset == self.start
        end = read_header(self.batches[-1]).last_offset + 1 if self.batches else self.start
        # Behind a gap that no index spans there may be a segment that nothing was written to.
        assert log.log_end_offset == end or self.gap is HUGE_GAP
        assert self.synced <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        check_log(log, self.batches, self.rng)
        if not self.lost_beginning:
            check_producers(log, self.batches)


@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32))
def test_a_followers_log_is_a_part_of_one_history_with_all_that_was_synced(seed: int) -> None:
    rng = random.Random(seed)
    follower = Follower(rng)
    for _ in range(rng.randint(1, 3)):
        follower.live(rng.randint(0, 150))
        follower.crash()
    for _ in range(5):
        follower.append()
    follower.check()
