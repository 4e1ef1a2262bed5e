"""A round of compaction on a real log: readers, producers and a crash at any moment find what they should."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

import pytest

from ottla.log.compaction import CleanedGroup, CompactionError, CompactionJob, CompactionResult
from ottla.log.compaction_plan import dirtiness_of, plan_round
from ottla.log.disk import Bytes
from ottla.log.partition_log import PartitionLog
from ottla.log.replacement import commit
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, OutOfSpaceError, StorageError
from ottla.runtime.compaction_round import CompactionWork, compact_log
from ottla.runtime.record_inline import InlineRecordWork
from ottla.wire.records import Record, build_batch, iterate
from tests.unit.log.crash_disk import CrashDisk, PowerCut
from tests.unit.log.files_of_batches import view_of
from tests.unit.log.support import NOW_MS, append, check_indexes, open_log, read_all, sync_and_mark

DIRECTORY = "/data/orders-3"
CONFIG = TopicConfig(
    cleanup_compact=True, cleanup_delete=False, segment_bytes=500, index_interval_bytes=100, delete_retention_ms=10
)

P = ParamSpec("P")
T = TypeVar("T")


class AtOnce:
    """An offload that runs what it gets in place."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None:
        pass


def new_log(disk: CrashDisk, config: TopicConfig = CONFIG) -> PartitionLog:
    disk.makedirs("/data")
    disk.sync_dir("/")
    return open_log(disk, DIRECTORY, config=config)


def write(log: PartitionLog, *pairs: tuple[bytes | None, bytes | None], **producer: int) -> bytearray:
    batch = build_batch([Record(at, NOW_MS, key, value) for at, (key, value) in enumerate(pairs)], **producer)
    sent = bytearray(batch)
    append(log, batch)
    return sent


def fill(log: PartitionLog, rng: random.Random, batches: int = 30) -> None:
    sequences = {1: 0, 2: 0}
    for _ in range(batches):
        pairs = [
            (b"k%d" % rng.randrange(8), rng.choice([None, rng.randbytes(rng.randrange(40))]))
            for _ in range(rng.randint(1, 4))
        ]
        producer_id = rng.choice([-1, 1, 2])
        if producer_id < 0:
            write(log, *pairs)
            continue
        write(log, *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequences[producer_id])
        sequences[producer_id] += len(pairs)
    log.sync_until(log.log_end_offset)
    log.mark_flushed(log.log_end_offset)


def job_for(
    log: PartitionLog, disk: CrashDisk, *, checkpoint: int | None = None, now_ms: int = NOW_MS
) -> CompactionJob:
    dirtiness = dirtiness_of(log, checkpoint=checkpoint, last_stable_offset=log.log_end_offset, now_ms=now_ms)
    return plan_round(log, disk, dirtiness, now_ms=now_ms, seed=5)


def compact(log: PartitionLog, disk: CrashDisk, **changes: int) -> CompactionResult:
    return asyncio.run(in_place(log, job_for(log, disk, **changes), InlineRecordWork(disk), disk))


async def in_place(log: PartitionLog, job: CompactionJob, work: CompactionWork, disk: CrashDisk) -> CompactionResult:
    return await compact_log(log, job, work, disk=disk, offload=AtOnce(), sync=sync_and_mark, discard=log.delete_files)


def records_of(log: PartitionLog) -> list[Record]:
    return [record for batch in read_all(log, max_bytes=300) for record in iterate(batch)]


def survivors(records: Sequence[Record], sealed_end: int) -> list[Record]:
    """What is left when everything below `sealed_end` was compacted."""
    latest = {record.key: record.offset for record in records if record.offset < sealed_end}
    return [record for record in records if record.offset >= latest.get(record.key, 0)]


@pytest.mark.parametrize("seed", range(5))
def test_a_consumer_reads_the_last_record_of_each_key_at_its_old_offset(seed: int) -> None:
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(seed))
    before, sealed_end = records_of(log), log.active.base_offset
    done = compact(log, disk)
    assert done.first_dirty_offset == sealed_end
    assert any(group.is_changed for group in done.groups)
    assert records_of(log) == survivors(before, sealed_end)
    assert (log.log_start_offset, log.log_end_offset) == (0, before[-1].offset + 1)
    assert not [name for name in disk.listdir(DIRECTORY) if name.count(".") > 1]
    check_indexes(log)
    again = dirtiness_of(log, checkpoint=sealed_end, last_stable_offset=log.log_end_offset, now_ms=NOW_MS)
    assert not again.is_due(CONFIG)
    restarted = open_log(disk, DIRECTORY, clean=False, config=CONFIG, recovery_point=log.recovery_point)
    assert records_of(restarted) == records_of(log)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_loss_after_compaction_does_not_take_the_last_value_of_a_key_with_it(seed: int) -> None:
    disk = CrashDisk()
    log = new_log(disk)
    write(log, (b"k", b"old"), (b"other", b"x" * 300))
    log.roll(NOW_MS)
    log.sync_until(log.log_end_offset)
    log.mark_flushed(log.log_end_offset)
    write(log, (b"k", b"y" * 300))  # Its segment is left as it is, and nobody has synced it.
    log.roll(NOW_MS)
    done = compact(log, disk)
    assert [group.is_changed for group in done.groups] == [True, False]
    crashed = disk.crash(random.Random(seed))
    restarted = open_log(crashed, DIRECTORY, clean=False, config=CONFIG, recovery_point=2)
    assert b"k" in [record.key for record in records_of(restarted)]


def test_every_offset_of_a_compacted_log_can_be_asked_for() -> None:
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(3))
    compact(log, disk)
    left = [record.offset for record in records_of(log)]
    for offset in range(log.log_end_offset):
        found = log.read(offset, 1 << 20, log.log_end_offset, True)
        assert found is not None
        data = found.file.pread(found.length, found.position)
        following = [record.offset for record in iterate(first_batch(data)) if record.offset >= offset]
        if following:
            assert following[0] == min(at for at in left if at >= offset)


def first_batch(data: bytes) -> bytes:
    return data[: 12 + int.from_bytes(data[8:12], "big")]


def test_a_producer_goes_on_after_compaction_and_a_restart() -> None:
    disk = CrashDisk()
    log = new_log(disk)
    producer = {"producer_id": 4, "producer_epoch": 1}
    write(log, (b"a", b"1" * 200), (b"b", b"1" * 200), base_sequence=0, **producer)
    last = write(log, (b"a", b"2" * 200), (b"b", b"2" * 100), base_sequence=2, **producer)
    for _ in range(4):
        write(log, (b"a", b"3" * 100), (b"b", b"3" * 100))
    log.roll(NOW_MS)
    log.sync_until(log.log_end_offset)
    log.mark_flushed(log.log_end_offset)
    compact(log, disk)
    for name in disk.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    restarted = open_log(disk, DIRECTORY, clean=False, config=CONFIG, recovery_point=log.recovery_point)
    repeated = append(restarted, last)
    assert repeated.duplicate
    assert repeated.base_offset == 2
    with pytest.raises(ApiError):
        write(restarted, (b"c", b""), base_sequence=7, **producer)
    write(restarted, (b"c", b""), base_sequence=4, **producer)


def test_tombstones_go_after_their_time_and_what_they_deleted_does_not_come_back() -> None:
    disk = CrashDisk()
    log = new_log(disk)
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"a", None))
    log.roll(NOW_MS)
    write(log, (b"z", b"1"))
    log.roll(NOW_MS)
    compact(log, disk)
    assert [(record.key, record.value) for record in records_of(log)] == [(b"b", b"1"), (b"a", None), (b"z", b"1")]
    compact(log, disk, now_ms=NOW_MS + 10)
    assert [(record.key, record.value) for record in records_of(log)] == [(b"b", b"1"), (b"z", b"1")]


class Meddler(InlineRecordWork):
    """Work during which something else happens to the log."""

    def __init__(self, disk: CrashDisk, meddle: Callable[[], None]) -> None:
        super().__init__(disk)
        self._meddle = meddle

    async def compact(
        self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
    ) -> CompactionResult:
        result = await super().compact(job, on_group)
        self._meddle()
        return result


@pytest.mark.parametrize("gone", [1, 2, 3])
@pytest.mark.parametrize("group_bytes", [500, 1200, 100_000])
def test_segments_that_retention_took_meanwhile_do_not_come_back(gone: int, group_bytes: int) -> None:
    """Not even if only some of those that became one new segment are gone."""
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))
    log.config = replace(CONFIG, segment_bytes=group_bytes)
    job = job_for(log, disk)
    start, left = log.segments[gone].base_offset, log.segments[gone:]
    before = [record for record in records_of(log) if record.offset >= start]

    def delete_records() -> None:
        log.delete_files(log.delete_records_before(start))

    with pytest.raises(CompactionError, match="changed"):
        asyncio.run(in_place(log, job, Meddler(disk, delete_records), disk))
    assert log.log_start_offset == start
    assert log.segments == left
    assert records_of(log) == before
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".swap")]
    compact(log, disk)
    assert not [name for name in disk.listdir(DIRECTORY) if name.count(".") > 1]
    assert view_of(records_of(log)) == view_of(before)


def test_a_log_that_was_cut_while_a_round_found_nothing_to_do_is_not_called_clean() -> None:
    disk = CrashDisk()
    log = new_log(disk)
    for number in range(20):
        write(log, (b"key-%d" % number, b"v" * 100))

    def cut() -> None:
        log.truncate_to(10)

    with pytest.raises(CompactionError, match="cut"):
        asyncio.run(in_place(log, job_for(log, disk), Meddler(disk, cut), disk))


def test_a_round_that_fails_half_way_gives_back_the_room_of_what_it_has_replaced() -> None:
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))

    class OutOfRoom(InlineRecordWork):
        async def compact(
            self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
        ) -> CompactionResult:
            def only_the_first(group: CleanedGroup) -> None:
                if group.sources[0] == 0 and on_group is not None:
                    on_group(group)

            await super().compact(job, only_the_first)
            raise CompactionError("no room for the next one")

    with pytest.raises(CompactionError, match="no room"):
        asyncio.run(in_place(log, job_for(log, disk), OutOfRoom(disk), disk))
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".deleted")]


def test_a_round_that_is_cancelled_leaves_the_log_as_it_was() -> None:
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))
    before = records_of(log)

    class Endless(InlineRecordWork):
        async def compact(
            self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
        ) -> CompactionResult:
            await asyncio.Event().wait()
            raise AssertionError

    async def cancel() -> None:
        task = asyncio.ensure_future(in_place(log, job_for(log, disk), Endless(disk), disk))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert records_of(log) == before


def test_records_without_times_are_as_young_as_their_file() -> None:
    """As in Kafka; else `min.compaction.lag.ms` protects none of them."""
    disk = CrashDisk()
    log = new_log(disk, replace(CONFIG, min_compaction_lag_ms=1000))
    append(log, build_batch([Record(0, -1, b"k", b"v")]))
    log.roll(NOW_MS)
    disk.set_modified_ms(log.segments[0].path, NOW_MS)
    assert job_for(log, disk, now_ms=NOW_MS + 999).segments == []
    assert len(job_for(log, disk, now_ms=NOW_MS + 1000).segments) == 1


def test_records_without_times_grow_no_younger_by_being_compacted() -> None:
    """Else a log that is compacted now and then never loses them to `retention.ms`."""
    disk = CrashDisk()
    log = new_log(disk)
    for value in (b"old", b"new"):
        append(log, build_batch([Record(0, -1, b"k", value)]))
    log.roll(NOW_MS)
    disk.set_modified_ms(log.segments[0].path, 12_345)
    assert compact(log, disk).records_kept == 1
    assert log.segments[0].age_timestamp == 12_345


@pytest.mark.parametrize("names_in_order", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_a_crash_at_any_moment_of_a_round_loses_no_key(seed: int, names_in_order: bool) -> None:
    rng = random.Random(seed)
    disk = CrashDisk()
    config = TopicConfig(
        cleanup_compact=True, segment_bytes=rng.choice([300, 500, 2000]), index_interval_bytes=50, retention_ms=-1
    )
    log = new_log(disk, config)
    fill(log, rng)
    before, sealed_end, recovery_point = records_of(log), log.active.base_offset, log.recovery_point
    disk.changes_left = rng.randrange(90)
    with contextlib.suppress(PowerCut):
        compact(log, disk)
    after = disk.crash(rng, names_in_order=names_in_order)
    restarted = open_log(after, DIRECTORY, clean=False, config=config, recovery_point=recovery_point)
    found = records_of(restarted)
    assert view_of(found) == view_of(before)
    assert set(survivors(before, sealed_end)) <= set(found) <= set(before)
    assert restarted.log_end_offset == log.log_end_offset
    check_indexes(restarted)
    if restarted.active.base_offset >= sealed_end:
        compact(restarted, after)
        assert view_of(records_of(restarted)) == view_of(before)
        assert not [name for name in after.listdir(DIRECTORY) if name.count(".") > 1]


def test_a_segment_that_was_begun_during_a_round_and_lost_is_no_gap_of_compaction() -> None:
    """Else a follower would never ask again for what was in it, and lead without it one day."""
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))
    lost: list[int] = []

    class WrittenToMeanwhile(InlineRecordWork):
        async def compact(
            self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
        ) -> CompactionResult:
            log.roll(NOW_MS)
            lost.append(log.log_end_offset)
            write(log, (b"k", b"lost"))
            log.roll(NOW_MS)
            write(log, (b"l", b"not lost"))
            return await super().compact(job, on_group)

    asyncio.run(in_place(log, job_for(log, disk), WrittenToMeanwhile(disk), disk))
    disk.open(f"{DIRECTORY}/{lost[0]:020d}.log").truncate(0)
    restarted = open_log(disk.crash_with_everything(), DIRECTORY, clean=False, config=CONFIG)
    assert restarted.log_end_offset == lost[0]


def check_a_loss_is_noticed(log: PartitionLog, disk: CrashDisk) -> None:
    """A crash takes the next segment of a log, and not the one behind it."""
    lost = log.log_end_offset
    for value in (b"lost", b"not lost"):
        log.roll(NOW_MS)
        write(log, (b"k", value))
    disk.open(f"{DIRECTORY}/{lost:020d}.log").truncate(0)
    restarted = open_log(disk.crash_with_everything(), DIRECTORY, clean=False, config=CONFIG)
    assert restarted.log_end_offset == lost


def is_full(path: str, data: Bytes) -> None:
    """In place of a disk's `write_atomically`."""
    raise OSError(errno.ENOSPC, "No space left on device", path)


def test_a_segment_that_is_lost_after_a_cut_of_a_compacted_log_is_no_gap_of_compaction() -> None:
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))
    compact(log, disk)
    log.delete_files(log.truncate_to(log.segments[1].base_offset, NOW_MS))
    log.sync_truncation()
    check_a_loss_is_noticed(log, disk)


def test_a_full_disk_has_no_room_to_note_gaps_and_stays_online(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))
    before = records_of(log)

    with monkeypatch.context() as patches:
        patches.setattr(disk, "write_atomically", is_full)
        with pytest.raises(OutOfSpaceError):
            compact(log, disk)
    assert records_of(log) == before
    assert compact(log, disk).records_kept < len(before)


def test_a_cut_of_a_compacted_log_that_a_full_disk_has_no_room_to_note_takes_nothing_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))
    compact(log, disk)
    log.delete_files(log.truncate_to(log.segments[1].base_offset, NOW_MS))

    with monkeypatch.context() as patches:
        patches.setattr(disk, "write_atomically", is_full)
        log.sync_truncation()
    check_a_loss_is_noticed(log, disk)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("at", ["sync", "work", "commit"])
def test_a_topic_that_is_deleted_while_it_is_compacted_takes_no_directory_offline(at: str, anew: bool) -> None:
    """Nor is anything written to the directory of one that was created with its name."""
    disk = CrashDisk()
    log = new_log(disk)
    fill(log, random.Random(1))
    job = job_for(log, disk)

    def delete() -> None:
        if log.directory in disk.directories and not disk.exists("/data/gone-delete"):
            log.rename_for_deletion("/data/gone-delete")
            if anew:
                disk.makedirs(DIRECTORY)

    class Deleting(AtOnce):
        async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            result = function(*args, **kwargs)
            if at == "commit" and function is commit:
                delete()
            return result

    class DeletingWork(InlineRecordWork):
        async def compact(
            self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
        ) -> CompactionResult:
            result = await super().compact(job, on_group)
            if at == "work":
                delete()
            return result

    async def sync(log: PartitionLog, target: int) -> None:
        await sync_and_mark(log, target)
        if at == "sync":
            delete()

    async def scenario() -> None:
        with pytest.raises((CompactionError, OSError)) as raised:
            await compact_log(
                log, job, DeletingWork(disk), disk=disk, offload=Deleting(), sync=sync, discard=log.delete_files
            )
        assert not isinstance(raised.value, StorageError)

    asyncio.run(scenario())
    assert not anew or disk.listdir(DIRECTORY) == []
