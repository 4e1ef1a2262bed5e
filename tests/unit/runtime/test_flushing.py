"""A sync that fails is final, whoever asked for it; what is no failure of the disk takes nothing offline."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar

import pytest

from ottla.log.disk import Bytes
from ottla.model.errors import ApiError, OutOfSpaceError
from ottla.runtime.flushing import Flushes
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of
from tests.unit.runtime.hosted import Hosted
from tests.unit.runtime.leader_stub import Following, LeaderStub
from tests.unit.runtime.test_maintenance import maintenance_of
from tests.unit.runtime.test_replica_fetcher import run

P = ParamSpec("P")
T = TypeVar("T")


def written() -> tuple[Hosted, CrashDisk]:
    hosted = Hosted()
    append(hosted.partition().log, batch_of(3))
    assert isinstance(hosted.world.disk, CrashDisk)
    return hosted, hosted.world.disk


def test_a_sync_that_fails_after_its_waiter_was_cancelled_takes_the_directory_offline() -> None:
    """Else the next sync succeeds, and what the first one lost counts as safe."""

    class Thread:
        """An offload whose work goes on when nobody waits for it, and is done when the test says so."""

        def __init__(self) -> None:
            self.may_end = asyncio.Event()

        async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            await self.may_end.wait()
            return function(*args, **kwargs)

        def close(self) -> None:
            pass

    async def scenario() -> None:
        hosted, disk = written()
        thread, log = Thread(), hosted.partition().log
        flushes = Flushes(replace(hosted.world, offload=thread), hosted.table.directory_failed)
        waiting = asyncio.ensure_future(flushes.sync(log, log.log_end_offset))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        disk.fail_syncs = lambda: OSError(errno.EIO, "Input/output error")
        thread.may_end.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert [error.directory for error in hosted.failures] == ["/data"]
        assert log.recovery_point == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_what_a_sync_says_of_batches_is_final_even_if_it_is_that_there_is_no_space(error: int) -> None:
    async def scenario() -> None:
        hosted, disk = written()
        disk.fail_syncs = lambda: OSError(error, "as the test wants it")
        with pytest.raises(ApiError):
            await hosted.flushes.flush(hosted.partition())
        assert [failure.directory for failure in hosted.failures] == ["/data"]

    asyncio.run(scenario())


def test_a_full_disk_has_no_room_for_leader_epochs_and_stays_online(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        hosted, disk = written()

        def is_full(path: str, data: Bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", path)

        with monkeypatch.context() as patches:
            patches.setattr(disk, "write_atomically", is_full)
            with pytest.raises(OutOfSpaceError):
                await hosted.flushes.flush(hosted.partition())
        assert (hosted.failures, hosted.partition().log.recovery_point) == ([], 0)
        await hosted.flushes.flush(hosted.partition())
        assert hosted.partition().log.recovery_point == 3

    asyncio.run(scenario())


def test_a_process_with_too_many_open_files_does_not_lose_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        hosted, disk = written()

        def has_none(path: str) -> None:
            raise OSError(errno.EMFILE, "Too many open files", path)

        monkeypatch.setattr(disk, "sync_dir", has_none)
        with pytest.raises(ApiError):
            await hosted.flushes.flush(hosted.partition())
        assert hosted.failures == []

    asyncio.run(scenario())


def test_a_partition_that_is_deleted_while_it_is_synced_takes_nobody_offline() -> None:
    async def scenario() -> None:
        hosted, _ = written()
        log = hosted.partition().log
        log.rename_for_deletion("/data/orders-0.5f-delete")
        await hosted.flushes.sync(log, 3)
        assert hosted.failures == []

    asyncio.run(scenario())


def test_a_checkpoint_goes_on_where_one_log_cannot_be_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        following = Following(LeaderStub(2))
        for index in range(2):
            append(following.log(index), batch_of(10))
            following.log(index).roll(NOW_MS)
        sync_dir = following.disk.sync_dir

        def has_none_for_the_first(path: str) -> None:
            if path == following.log(0).directory:
                raise OSError(errno.EMFILE, "Too many open files", path)
            sync_dir(path)

        monkeypatch.setattr(following.disk, "sync_dir", has_none_for_the_first)
        await maintenance_of(following).checkpoint()
        assert [following.log(index).recovery_point for index in range(2)] == [0, 10]

    run(scenario)


def test_a_sync_of_a_deleted_topic_writes_nothing_into_the_one_that_has_its_name_by_now() -> None:
    """Leader epochs of another log would make recovery take good batches for bad ones, and cut them off."""

    async def scenario() -> None:
        hosted, disk = written()
        log, again = hosted.partition().log, f"{hosted.partition().log.directory}"
        append(log, batch_of(3), leader_epoch=5)
        sync_dir = disk.sync_dir

        def deleted_and_created(path: str) -> None:
            sync_dir(path)
            if path == again and not disk.exists("/data/orders-0.5f-delete"):
                log.rename_for_deletion("/data/orders-0.5f-delete")
                disk.makedirs(again)

        disk.sync_dir = deleted_and_created  # type: ignore[method-assign]
        await hosted.flushes.sync(log, 6)
        assert (hosted.failures, disk.listdir(again)) == ([], [])

    asyncio.run(scenario())
