"""The chores of a broker, where a directory has no room left or fails."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.log.checkpoints import read_offsets
from ottla.log.directory import CLEAN_SHUTDOWN, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.disk import Bytes
from ottla.model.errors import OutOfSpaceError
from ottla.runtime.maintenance import Maintenance, log
from ottla.runtime.partition import Partition
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of, open_log
from tests.unit.runtime.leader_stub import TOPIC, Following, LeaderStub
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
        partition = following.partition()
        (error,) = (await maintenance.raise_starts({partition: 20})).values()
        assert isinstance(error, OutOfSpaceError)
        await following.until(lambda: not any(".deleted" in name for name in following.disk.listdir(log.directory)))
        following.disk.fail_writes = lambda size: None
        assert not await maintenance.raise_starts({partition: 20})
        assert following.disk.read(f"/data/{LOG_START_OFFSETS}") == f"0\n1\n{TOPIC} 0 20\n".encode()
        await maintenance.stop()

    run(scenario)


@pytest.mark.parametrize("by", ["retention", "request"])
def test_a_start_is_stored_before_files_go_that_a_crash_may_bring_back_in_part(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where names last in no order the hole between them would look like the end of what was safe."""

    async def scenario() -> None:
        following = Following(LeaderStub(), file_delete_delay_ms=0, retention_bytes=1)
        log, maintenance = following.log(), maintenance_of(following)
        for _ in range(4):
            append(log, batch_of(10))
            log.roll(NOW_MS)
        following.partition().append_as_follower(memoryview(b""), 30, 0)
        log.sync_until(log.log_end_offset)
        crashed: list[CrashDisk] = []
        rename = following.disk.rename

        def fails_in_the_midst(source: str, target: str) -> None:
            if source.endswith(f"{10:020d}.log"):
                crashed.append(following.disk.crash_with_everything())
                crashed[0].remove(source)
                crashed[0].rename(f"{log.directory}/{0:020d}.log.deleted", f"{log.directory}/{0:020d}.log")
            rename(source, target)

        monkeypatch.setattr(following.disk, "rename", fails_in_the_midst)
        if by == "retention":
            await maintenance.apply_retention()
        else:
            assert not await maintenance.raise_starts({following.partition(): 30})
        assert log.log_start_offset == 30
        starts = read_offsets(crashed[0], f"/data/{LOG_START_OFFSETS}")
        again = open_log(
            crashed[0], log.directory, tp=log.tp, clean=False, log_start_offset=starts.get(log.tp, 0), recovery_point=0
        )
        assert (again.log_start_offset, again.log_end_offset) == (30, 40)
        await maintenance.stop()

    run(scenario)


def test_the_log_speaks_of_deleted_records_only_where_some_were(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        following = Following(LeaderStub())
        append(following.log(), batch_of(10))
        following.partition().append_as_follower(memoryview(b""), 10, 0)
        said: list[tuple[str, object]] = []
        # Not `capture_logs`: whoever has set the level to warning before, in this process, would keep it from hearing.
        monkeypatch.setattr(log, "info", lambda event, **fields: said.append((event, fields["log_start_offset"])))
        for offset in (0, 5, 5):
            assert not await maintenance_of(following).raise_starts({following.partition(): offset})
        assert said == [("records deleted", 5)]

    run(scenario)


def two_directories(monkeypatch: pytest.MonkeyPatch, error: int) -> Following:
    """A partition in each of two directories; nothing small can be stored in the first one."""
    following = Following(LeaderStub(2), {"log.dirs": "/data,/more"})
    for index in range(2):
        append(following.log(index), batch_of(10))
        following.log(index).roll(NOW_MS)
    assert [following.log(index).directory for index in range(2)] == [f"/data/{TOPIC}-0", f"/more/{TOPIC}-1"]
    write_atomically = following.disk.write_atomically

    def fail_in_the_first(path: str, data: Bytes) -> None:
        if path.rpartition("/")[0] == "/data":
            raise OSError(error, "as the test wants it")
        write_atomically(path, data)

    monkeypatch.setattr(following.disk, "write_atomically", fail_in_the_first)
    return following


def test_starts_are_stored_in_one_write_and_before_they_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        following = Following(LeaderStub(5))
        maintenance, partitions = maintenance_of(following), list(following.table)
        writes: list[str] = []
        write_atomically = following.disk.write_atomically

        def noted(path: str, data: Bytes) -> None:
            writes.append(path)
            write_atomically(path, data)

        for partition in partitions:
            append(partition.log, batch_of(10))
            partition.append_as_follower(memoryview(b""), 10, 0)
        monkeypatch.setattr(following.disk, "write_atomically", noted)
        assert not await maintenance.raise_starts(dict.fromkeys(partitions, 7))
        assert writes == [f"/data/{LOG_START_OFFSETS}"]
        lines = following.disk.crash(random.Random(1)).read(f"/data/{LOG_START_OFFSETS}").decode().splitlines()
        assert lines[2:] == [f"{TOPIC} {index} 7" for index in range(5)]

    run(scenario)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_directory_that_cannot_store_a_start_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    async def scenario() -> None:
        following = two_directories(monkeypatch, error)
        maintenance = maintenance_of(following)
        told: list[int] = []
        for partition in following.table:
            partition.append_as_follower(memoryview(b""), 10, 0)
        monkeypatch.setattr(Partition, "grown", lambda partition: told.append(partition.index))
        failed = await maintenance.raise_starts(dict.fromkeys(following.table, 5))
        assert list(failed) == [following.partition(0)]
        assert told == [1]
        assert following.disk.read(f"/more/{LOG_START_OFFSETS}") == f"0\n1\n{TOPIC} 1 5\n".encode()

    run(scenario)


@pytest.mark.parametrize("by", ["retention", "request"])
def test_a_directory_that_fails_while_old_records_go_keeps_no_other_from_it(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        following = Following(LeaderStub(2), {"log.dirs": "/data,/more"}, retention_bytes=1, file_delete_delay_ms=0)
        maintenance, partitions = maintenance_of(following), list(following.table)
        for partition in partitions:
            for _ in range(2):
                append(partition.log, batch_of(10))
                partition.log.roll(NOW_MS)
            partition.append_as_follower(memoryview(b""), 20, 0)
        rename = following.disk.rename

        def fail_in_the_first(source: str, target: str) -> None:
            if source.startswith(f"/data/{TOPIC}"):
                raise OSError(errno.EIO, "as the test wants it")
            rename(source, target)

        monkeypatch.setattr(following.disk, "rename", fail_in_the_first)
        if by == "retention":
            await maintenance.apply_retention()
        else:
            assert list(await maintenance.raise_starts(dict.fromkeys(partitions, 10))) == partitions[:1]
        assert following.directories.offline_ids() == [following.directories.online[0].directory_id]
        assert partitions[1].log.log_start_offset == 10
        await maintenance.stop()

    run(scenario)


def test_a_full_directory_keeps_no_other_from_being_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        following = two_directories(monkeypatch, errno.ENOSPC)
        with pytest.raises(OutOfSpaceError):
            await maintenance_of(following).checkpoint()
        assert following.disk.read(f"/more/{RECOVERY_POINTS}") == f"0\n1\n{TOPIC} 1 10\n".encode()
        assert following.partition(0).log_or_none is not None

    run(scenario)


def test_a_directory_that_fails_when_offsets_are_stored_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        following = two_directories(monkeypatch, errno.EIO)
        following.directories.on_failure(following.table.directory_failed)
        await maintenance_of(following).checkpoint()
        assert following.directories.offline_ids() == [following.directories.online[0].directory_id]
        assert following.partition(0).log_or_none is None
        assert following.disk.read(f"/more/{RECOVERY_POINTS}") == f"0\n1\n{TOPIC} 1 10\n".encode()

    run(scenario)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_directory_that_cannot_be_closed_keeps_no_other_from_a_clean_stop(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    async def scenario() -> None:
        following = two_directories(monkeypatch, error)
        await following.directories.close_logs(following.table)
        assert not following.disk.exists(f"/data/{CLEAN_SHUTDOWN}")
        assert following.disk.exists(f"/more/{CLEAN_SHUTDOWN}")

    run(scenario)
