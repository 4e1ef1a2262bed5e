"""The chores of a broker, where a directory has no room left or fails."""

from __future__ import annotations

import errno

import pytest

from ottla.model.errors import OutOfSpaceError
from ottla.runtime.maintenance import Maintenance
from tests.unit.log.support import NOW_MS, append, batch_of
from tests.unit.runtime.leader_stub import Following, LeaderStub
from tests.unit.runtime.test_replica_fetcher import run


def maintenance_of(following: Following) -> Maintenance:
    flushes = following.context.flushes
    return Maintenance(following.world, following.table, following.directories, flushes, lambda: following.config)


def test_records_that_are_deleted_make_room_on_a_full_disk() -> None:
    async def scenario() -> None:
        following = Following(LeaderStub(), file_delete_delay_ms=0)
        log, maintenance = following.log(), maintenance_of(following)
        for _ in range(3):
            append(log, batch_of(10))
            log.roll(NOW_MS)
        following.partition().append_as_follower(memoryview(b""), 30, 0)
        following.disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
        with pytest.raises(OutOfSpaceError):
            await maintenance.delete_records(following.partition(), 20)
        await following.until(lambda: not any(".deleted" in name for name in following.disk.listdir(log.directory)))
        following.disk.fail_writes = lambda size: None
        assert await maintenance.delete_records(following.partition(), 20) == 20
        await maintenance.stop()

    run(scenario)
