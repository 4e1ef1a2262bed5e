"""Compaction leaves a reader of committed transactions the last committed record of each key, and nothing else."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.compaction_plan import dirtiness_of, plan_round
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.runtime.compaction_round import compact_log
from ottla.runtime.record_inline import InlineRecordWork
from ottla.wire.batch import TRANSACTIONAL_BIT
from ottla.wire.records import Record, build_batch
from tests.properties.committed_reader import read_committed
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.files_of_batches import view_of
from tests.unit.log.support import NOW_MS, append, marker_of, open_log, sync_and_mark
from tests.unit.runtime.metadata import Inline

DIRECTORY = "/data/orders-3"
RETENTION_MS = 10
CONFIG = TopicConfig(
    cleanup_compact=True,
    cleanup_delete=False,
    segment_bytes=600,
    index_interval_bytes=100,
    delete_retention_ms=RETENTION_MS,
)


class CompactedLog:
    """A log that several producers write to, in and out of transactions, and that is compacted now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = CrashDisk()
        self.disk.makedirs("/data")
        self.log = open_log(self.disk, DIRECTORY, config=CONFIG)
        self.checkpoint: int | None = None
        self.now_ms = NOW_MS

    def write(self) -> None:
        rng, log = self.rng, self.log
        producer_id = rng.choice([-1, 1, 2, 3])
        if producer_id > 0 and rng.random() < 0.35:
            append(log, marker_of(producer_id, 0, commit=rng.random() < 0.5))
            return
        known = {producer.producer_id: producer for producer in log.producers.active_producers()}.get(producer_id)
        records = [
            Record(index, NOW_MS, b"k%d" % rng.randrange(6), rng.choice([None, b"%d" % rng.randrange(10**9)]))
            for index in range(rng.randint(1, 3))
        ]
        is_transactional = producer_id > 0 and (
            rng.random() < 0.7 or (known is not None and known.transaction_first_offset is not None)
        )
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id > 0 else -1,
            base_sequence=-1 if producer_id < 0 else 0 if known is None else known.next_sequence,
            attributes=TRANSACTIONAL_BIT if is_transactional else 0,
        )
        append(log, batch)

    def compact(self) -> None:
        log, self.now_ms = self.log, self.now_ms + self.rng.choice([0, RETENTION_MS + 1])
        dirtiness = dirtiness_of(log, checkpoint=self.checkpoint, last_stable_offset=self.stable(), now_ms=self.now_ms)
        if not dirtiness.dirty_bytes:
            return
        job = plan_round(log, self.disk, dirtiness, now_ms=self.now_ms, seed=5)
        work = InlineRecordWork(self.disk)
        done = asyncio.run(
            compact_log(log, job, work, disk=self.disk, offload=Inline(), sync=sync_and_mark, discard=log.delete_files)
        )
        self.checkpoint = done.first_dirty_offset

    def stable(self) -> int:
        return self.log.producers.last_stable_offset(self.log.log_end_offset)

    def reopen(self) -> None:
        clean = self.rng.random() < 0.5
        if clean:
            self.log.close()
        self.log = open_log(self.disk, DIRECTORY, config=CONFIG, clean=clean)

    def view(self, log: PartitionLog) -> dict[bytes, bytes]:
        max_bytes = self.rng.choice([1, 400, 1 << 20])
        return view_of(read_committed(log, self.stable(), max_bytes))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_committed_is_the_same_after_compaction(seed: int) -> None:
    compacted = CompactedLog(random.Random(seed))
    for _ in range(4):
        for _ in range(compacted.rng.randint(5, 25)):
            compacted.write()
        before, stable = compacted.view(compacted.log), compacted.stable()
        compacted.compact()
        assert compacted.stable() == stable
        assert compacted.view(compacted.log) == before
        if compacted.rng.random() < 0.5:
            compacted.reopen()
            assert compacted.view(compacted.log) == before
