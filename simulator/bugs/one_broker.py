"""Bugs of a single broker: its log, its recovery, its producers and its coordinators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.core.groups.records import OffsetRecord
from ottla.log import recovery, transaction_index
from ottla.log.directory import LogDirectory
from ottla.log.index import OffsetIndex
from ottla.log.keeping import KeptLog
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerStates
from ottla.log.syncing import DirectoryNames
from ottla.runtime.coordinator_shard import CoordinatorShard
from ottla.runtime.fetch_sessions import FetchedPartition
from ottla.runtime.flushing import Flushes
from ottla.runtime.partition import Partition
from simulator.bugs.bug import Bug, Patches

ALONE: Final[dict[str, Any]] = {"nodes": 1, "replicas": 1, "seconds": 60, "seconds_between_faults": 3.0}
BUSY: Final[dict[str, Any]] = {
    **ALONE,
    "seconds_between_sends": 0.1,
    "seconds_between_transactions": 0.3,
    "producers": 3,
}
SYNCED: Final[dict[str, Any]] = {**BUSY, "flush_each": True}
UNSYNCED: Final[dict[str, Any]] = {**BUSY, "flush_each": False}
TORN: Final[dict[str, Any]] = {
    **UNSYNCED,
    "nodes": 3,
    "replicas": 3,
    "partitions": 2,
    "batch_records_max": 100,
    "segment_bytes": 1 << 16,
    "seconds_between_sends": 0.2,
    "seconds_between_faults": 2.0,
}
"""Batches of several sectors, of which the power takes some: without syncs that takes several brokers."""
TRANSACTIONAL: Final[dict[str, Any]] = {**SYNCED, "transactional_producers": 3, "readers": 2}
GROUPED: Final[dict[str, Any]] = {**SYNCED, "group_members": 3}


def _acknowledge_before_sync(patches: Patches) -> None:
    async def flush(self: Flushes, partition: Partition) -> None:
        partition.advance(partition.log.log_end_offset)

    patches.put(Flushes, "flush", flush)


def _names_are_not_synced(patches: Patches) -> None:
    def sync(self: DirectoryNames) -> None:
        self._synced = self._version

    patches.put(DirectoryNames, "sync", sync)


def _sync_skips_the_active_segment(patches: Patches) -> None:
    original = KeptLog.sync_until

    def sync_until(self: KeptLog, offset: int) -> None:
        original(self, self.active.base_offset)

    patches.put(KeptLog, "sync_until", sync_until)


def _recovery_keeps_torn_batches(patches: Patches) -> None:
    original = recovery._Recovery._recover

    def recover(self: Any, segment: Any, index: int) -> bool:
        rebuild = type(segment).rebuild
        type(segment).rebuild = lambda found, **kwargs: rebuild(found, **{**kwargs, "check_crc": False})
        try:
            return original(self, segment, index)
        finally:
            type(segment).rebuild = rebuild

    patches.put(recovery._Recovery, "_recover", recover)


def _recovery_cuts_the_last_segment(patches: Patches) -> None:
    original = recovery._Recovery.run

    def run(self: Any) -> None:
        original(self)
        log = self._log
        if len(log.segments) > 1:
            log.log_end_offset = log.recovery_point = log.segments[-1].base_offset
            self._drop_from(len(log.segments) - 1)
            log.segments[-1].load_tail()

    patches.put(recovery._Recovery, "run", run)


def _producers_are_forgotten(patches: Patches) -> None:
    def rebuild_producers(self: recovery.LoadedLog, end_offset: int) -> None:
        self.producers.clear()

    patches.put(recovery.LoadedLog, "rebuild_producers", rebuild_producers)


def _repeated_batches_are_written(patches: Patches) -> None:
    def check(self: ProducerStates, *args: int) -> None:
        return None

    patches.put(ProducerStates, "check", check)


def _index_points_behind(patches: Patches) -> None:
    original = OffsetIndex.floor

    def floor(self: OffsetIndex, key: int) -> tuple[int, int] | None:
        return original(self, key + 4)

    patches.put(OffsetIndex, "floor", floor)


def _clean_mark_is_always_believed(patches: Patches) -> None:
    original = LogDirectory.__init__

    def init(self: LogDirectory, *args: Any) -> None:
        original(self, *args)
        self.was_clean = True
        self._unrecovered = set()

    patches.put(LogDirectory, "__init__", init)


def _readers_are_not_woken(patches: Patches) -> None:
    counter = [0]

    def partition_changed(self: FetchedPartition) -> None:
        counter[0] += 1
        session = self.session
        if counter[0] % 3:
            session.dirty[self] = None
        if session.waiting is not None:
            session.waiting.wake()

    patches.put(FetchedPartition, "partition_changed", partition_changed)


def _open_transactions_are_shown(patches: Patches) -> None:
    patches.put(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


def _aborted_transactions_are_not_listed(patches: Patches) -> None:
    original = transaction_index.TransactionIndex.overlapping

    def overlapping(self: Any, fetch_offset: int, upper_bound_offset: int) -> Any:
        found, is_complete = original(self, fetch_offset, upper_bound_offset)
        return found[1:], is_complete

    patches.put(transaction_index.TransactionIndex, "overlapping", overlapping)


def _recovery_forgets_aborts(patches: Patches) -> None:
    from ottla.log.segment import Segment

    original = Segment.replace_transactions

    def replace_transactions(self: Segment, aborted: Sequence[Any]) -> None:
        original(self, [])

    patches.put(Segment, "replace_transactions", replace_transactions)


def _offsets_are_answered_before_they_are_written(patches: Patches) -> None:
    original = CoordinatorShard._append

    def append(self: CoordinatorShard[Any], outcome: Any, now_ms: int, *, together: bool) -> None:
        if any(isinstance(record, OffsetRecord) for record in outcome.records):
            self._replay(outcome.records, outcome.producer_id, outcome)
        else:
            original(self, outcome, now_ms, together=together)

    patches.put(CoordinatorShard, "_append", append)


def _recovery_point_runs_ahead(patches: Patches) -> None:
    original = PartitionLog.append

    def append(self: PartitionLog, *args: Any) -> Any:
        appended = original(self, *args)
        self.recovery_point = self.log_end_offset
        return appended

    patches.put(PartitionLog, "append", append)


def _fetch_begins_too_late(patches: Patches) -> None:
    from ottla.log.reading import ReadableLog

    original = ReadableLog.read

    def read(self: ReadableLog, offset: int, *args: Any, **kwargs: Any) -> Any:
        return original(self, offset + 1 if offset and offset % 37 == 0 else offset, *args, **kwargs)

    patches.put(ReadableLog, "read", read)


ONE_BROKER: Final = (
    Bug("acknowledge before sync", "flush.messages=1 is answered at once", 6, _acknowledge_before_sync, SYNCED),
    Bug("names are not synced", "a new segment's name goes with the power", 10, _names_are_not_synced, SYNCED),
    Bug("the active segment is not synced", "a sync covers sealed segments", 6, _sync_skips_the_active_segment, SYNCED),
    Bug("recovery believes torn batches", "no CRC is checked", 8, _recovery_keeps_torn_batches, TORN),
    Bug("recovery cuts good segments", "what was acknowledged is gone", 6, _recovery_cuts_the_last_segment, UNSYNCED),
    Bug("producers are forgotten", "a retry after a crash is written twice", 10, _producers_are_forgotten, UNSYNCED),
    Bug("repeats are written", "sequence numbers are not looked at", 6, _repeated_batches_are_written, SYNCED),
    Bug("index points behind", "a fetch begins after what was asked for", 6, _index_points_behind, UNSYNCED),
    Bug("every stop counts as clean", "nothing is recovered", 10, _clean_mark_is_always_believed, SYNCED),
    Bug("sessions forget", "a partition with news is not marked", 10, _readers_are_not_woken, UNSYNCED),
    Bug("open transactions are shown", "the last stable offset", 6, _open_transactions_are_shown, TRANSACTIONAL),
    Bug("aborts are not listed", "aborted records are shown", 6, _aborted_transactions_are_not_listed, TRANSACTIONAL),
    Bug("recovery forgets aborts", "the transaction index", 20, _recovery_forgets_aborts, TRANSACTIONAL),
    Bug(
        "offsets are never written", "a crash takes commits", 10, _offsets_are_answered_before_they_are_written, GROUPED
    ),
    Bug("recovery point runs ahead", "torn tails are called corruption", 10, _recovery_point_runs_ahead, SYNCED),
    Bug("reads begin late", "every 37th offset is skipped", 6, _fetch_begins_too_late, UNSYNCED),
)
