"""What is stored of a partition's offsets is never higher than what is there."""

from __future__ import annotations

import asyncio
import errno
import threading
from dataclasses import replace

import pytest

from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.log.checkpoints import read_offsets
from ottla.log.directory import HIGH_WATERMARKS
from ottla.log.disk import Bytes
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import OutOfSpaceError
from ottla.model.ids import TopicPartition
from ottla.runtime.followed_partition import FollowedPartition
from ottla.runtime.offset_checkpoints import OffsetCheckpoints
from ottla.runtime.world import Threads
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of, open_log
from tests.unit.runtime.leader_stub import OWN, TOPIC, TOPIC_ID, Following, LeaderStub
from tests.unit.runtime.test_replica_fetcher import run

TP = TopicPartition(TOPIC, 0)


def filled() -> Following:
    following = Following(LeaderStub())
    log = following.log()
    for _ in range(10):
        append(log, batch_of(1))
    log.sync_until(10)
    log.mark_flushed(10)
    return following


def test_high_watermarks_are_there_after_a_restart() -> None:
    async def scenario() -> None:
        following = filled()
        following.partition().append_as_follower(memoryview(b""), 7, 0)
        await following.directories.checkpoints.store_replicated_high_watermarks(following.table)
        assert following.directories.checkpoints.stored_high_watermark(TP) == 7
        assert following.disk.read("/data/replication-offset-checkpoint") == b"0\n1\norders 0 7\n"
        partition = following.partition()
        partition.log_or_none, partition.high_watermark = None, 0
        assert partition.log.log_end_offset == 10
        assert partition.high_watermark == 7

    run(scenario)


def test_what_a_sole_replica_had_committed_is_known_after_a_stop_that_made_it_one_of_two() -> None:
    async def scenario() -> None:
        following = Following(LeaderStub())
        following.table.drop(TOPIC_ID)
        alone = PartitionImage(replicas=(OWN,), isr=(OWN,), leader=OWN, leader_epoch=6)
        following.table.host(TopicImage(TOPIC, TOPIC_ID, (alone,)), following.topic_config)
        append(following.log(), batch_of(10))
        following.partition().advance(10)
        await following.directories.checkpoints.store_replicated_high_watermarks(following.table)
        assert following.directories.checkpoints.stored_high_watermark(TP) == 0, "it is the end of the log"
        await following.directories.close_logs(following.table)
        assert following.directories.checkpoints.stored_high_watermark(TP) == 10

    run(scenario)


def test_a_checkpoint_that_waits_while_a_log_is_cut_stores_what_is_left() -> None:
    async def scenario() -> None:
        following = filled()
        partition, checkpoints = following.partition(), following.directories.checkpoints
        await checkpoints.store([partition])
        assert following.directories.online[0].recovery_points[TP] == 10
        async with checkpoints.lowered(partition, 4):
            assert following.directories.online[0].recovery_points[TP] <= 4
            waiting = asyncio.ensure_future(checkpoints.store([partition]))
            for _ in range(5):
                await asyncio.sleep(0)
            partition.truncate_to(4)
        await waiting
        assert following.disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 4\n"

    run(scenario)


def placed(batch: bytearray, offset: int) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    return batch


def test_a_crash_after_a_cut_behind_a_gap_of_compaction_is_no_corruption() -> None:
    async def scenario() -> None:
        following = filled()
        partition, log = following.partition(), following.log()
        log.append_as_follower(memoryview(placed(batch_of(1), 40)), NOW_MS)
        log.sync_until(41)
        log.mark_flushed(41)
        await following.directories.checkpoint([partition])
        async with following.directories.checkpoints.lowered(partition, 40):
            partition.truncate_to(40)
        stored = following.directories.online[0].recovery_points[TP]
        again = open_log(
            following.disk.crash_with_everything(), log.directory, tp=TP, clean=False, recovery_point=stored
        )
        assert again.log_end_offset == log.log_end_offset == 10

    run(scenario)


def test_a_crash_while_a_log_begins_anew_is_no_corruption() -> None:
    async def scenario() -> None:
        following = filled()
        partition, log = following.partition(), following.log()
        log.roll(NOW_MS)
        log.append_as_follower(memoryview(placed(batch_of(1), 10)), NOW_MS)
        log.sync_until(11)
        log.mark_flushed(11)
        await following.directories.checkpoint([partition])
        async with following.directories.checkpoints.lowered(partition, 40, anew=True):
            partition.restart_at(40)
        stored = following.directories.online[0].recovery_points[TP]
        # Of all that was renamed only the last segment's name is gone, and the new one's never came.
        disk = following.disk.crash_with_everything()
        disk.remove(f"{log.directory}/{40:020d}.log")
        disk.rename(f"{log.directory}/{0:020d}.log.deleted", f"{log.directory}/{0:020d}.log")
        again = open_log(disk, log.directory, tp=TP, clean=False, recovery_point=stored)
        assert again.log_end_offset == 10

    run(scenario)


def test_a_start_above_the_cut_is_lowered_too() -> None:
    async def scenario() -> None:
        following = filled()
        partition, checkpoints = following.partition(), following.directories.checkpoints
        partition.append_as_follower(memoryview(b""), 10, 0)
        await checkpoints.raise_starts({partition: 8}, lambda partition, offset: partition.log.begin_at(offset))
        assert following.directories.online[0].log_start_offsets[TP] == partition.log.log_start_offset == 8
        async with checkpoints.lowered(partition, 4):
            pass
        assert following.directories.online[0].log_start_offsets[TP] == 4

    run(scenario)


def stored_high_watermark(following: Following) -> int:
    return read_offsets(following.disk, f"/data/{HIGH_WATERMARKS}")[TP]


@pytest.mark.parametrize("anew", [False, True])
def test_what_was_committed_above_a_cut_does_not_count_for_what_is_written_there_next(anew: bool) -> None:
    """Its leader was not in sync when it was elected. What it writes there may be committed by nobody yet."""

    async def scenario() -> None:
        following = filled()
        partition, checkpoints = following.partition(), following.directories.checkpoints
        partition.append_as_follower(memoryview(b""), 9, 0)
        await checkpoints.store_high_watermarks([partition])
        async with checkpoints.lowered(partition, 4, anew=anew):
            (partition.restart_at if anew else partition.truncate_to)(4)
        assert stored_high_watermark(following) == 4

    run(scenario)


def test_what_was_committed_above_the_end_that_a_crash_left_does_not_count_for_what_comes_next() -> None:
    async def scenario() -> None:
        following = filled()
        partition, directories = following.partition(), following.directories
        partition.append_as_follower(memoryview(b""), 9, 0)
        await directories.checkpoints.store_high_watermarks([partition])
        file = following.disk.open(f"{partition.log.directory}/{0:020d}.log")
        file.truncate(file.size() // 2)
        partition.log_or_none, partition.high_watermark = None, 0
        directories.online[0].was_clean = False
        await directories.recover(following.table, 1)
        assert stored_high_watermark(following) == partition.high_watermark == partition.log.log_end_offset < 9

    run(scenario)


def test_a_log_is_dirty_from_a_cut_on_after_a_crash_too() -> None:
    async def scenario() -> None:
        following = filled()
        cleaner = following.directories.cleaner_checkpoint(TP)
        cleaner.advance(TP, 9)
        await following.directories.checkpoint([following.partition()])
        assert following.disk.read("/data/cleaner-offset-checkpoint") == b"0\n1\norders 0 9\n"
        async with following.directories.checkpoints.lowered(following.partition(), 4):
            assert following.disk.read("/data/cleaner-offset-checkpoint") == b"0\n1\norders 0 4\n"

    run(scenario)


def test_who_is_gone_is_not_stored() -> None:
    async def scenario() -> None:
        following = filled()
        partition = following.partition()
        following.table.drop(partition.topic_id)
        await following.directories.checkpoints.store([partition])
        await following.directories.checkpoints.store_high_watermarks([partition])
        assert following.directories.online[0].recovery_points == {}
        failed = await following.directories.checkpoints.raise_starts({partition: 0}, lambda partition, offset: None)
        assert list(failed) == [partition]
        assert following.directories.online[0].log_start_offsets == {}

    run(scenario)


def test_a_log_is_not_cut_where_a_full_disk_cannot_store_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut, and then given up, it would be fetched on with the cut neither stored nor synced."""

    async def scenario() -> None:
        following = filled()
        partition, checkpoints = following.partition(), following.directories.checkpoints
        partition.append_as_follower(memoryview(b""), 9, 0)
        await checkpoints.store_high_watermarks([partition])
        followed, write_atomically = FollowedPartition(partition, following.context), following.disk.write_atomically

        def is_full(path: str, data: Bytes) -> None:
            if path == f"/data/{HIGH_WATERMARKS}":
                raise OSError(errno.ENOSPC, "No space left on device", path)
            write_atomically(path, data)

        with monkeypatch.context() as patches:
            patches.setattr(following.disk, "write_atomically", is_full)
            with pytest.raises(OutOfSpaceError):
                await followed.truncate_to(4)
        assert (followed.own().end_offset, partition.high_watermark) == (10, 9)
        await followed.truncate_to(4)
        assert (followed.own().end_offset, stored_high_watermark(following)) == (4, 4)

    run(scenario)


@pytest.mark.parametrize("offset", range(45))
def test_where_a_log_will_end_is_known_before_it_is_cut(offset: int) -> None:
    """Its batches have gaps between them, in a segment and behind one, and more than one record."""
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, "/data/orders-0", tp=TP, config=TopicConfig(index_interval_bytes=1))
    for base_offset in (3, 6, 10, 20, 30, 39):
        log.append_as_follower(memoryview(placed(batch_of(3), base_offset)), NOW_MS)
        if base_offset == 10:
            log.roll(NOW_MS)
    expected = log.end_after_cut(offset)
    log.truncate_to(offset)
    assert log.log_end_offset == expected <= offset


def test_whoever_is_cancelled_keeps_the_turn_until_what_it_writes_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop cancels the chores and stores the same files: two at once fail, and the next start recovers every log."""

    async def scenario() -> None:
        following, threads = filled(), Threads()
        world = replace(following.world, offload=threads)
        checkpoints = OffsetCheckpoints(world, following.directories.directory_of, following.directories.fail)
        has_begun, may_end = threading.Event(), threading.Event()
        write_atomically = following.disk.write_atomically

        def write_slowly(path: str, data: Bytes) -> None:
            has_begun.set()
            assert may_end.wait(10)
            write_atomically(path, data)

        monkeypatch.setattr(following.disk, "write_atomically", write_slowly)
        storing = asyncio.ensure_future(checkpoints.store(following.table))
        await asyncio.to_thread(has_begun.wait, 10)
        storing.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not storing.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await storing
        assert following.disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 10\n"
        threads.close()

    run(scenario)
