"""The directories that a broker takes, and those that it must leave alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

import pytest

from ottla.cli.cluster_plan import plan_cluster
from ottla.core.controller.image import MetadataImage, TopicImage
from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, StorageError
from ottla.runtime.flushing import Flushes
from ottla.runtime.log_directories import LogDirectories
from ottla.runtime.partitions import PartitionTable
from ottla.runtime.world import SystemClock, Threads, World
from tests.unit.log.support import append, batch_of
from tests.unit.runtime.leader_stub import OWN, TOPIC, TOPIC_ID, Following, LeaderStub
from tests.unit.runtime.metadata import Inline

P = ParamSpec("P")
T = TypeVar("T")


def opened(path: Path) -> LogDirectories:
    config = BrokerConfig.from_properties({"log.dirs": str(path)})
    world = World(clock=SystemClock(), offload=Threads(), disk=RealDisk(), rng=random.Random(1))
    directories = LogDirectories(world, OpenFiles(world.disk), config.producer_id_expiration_ms)
    directories.open(config)
    return directories


def test_one_broker_does_not_set_the_brokers_of_a_cluster_aside(tmp_path: Path) -> None:
    planned = plan_cluster(str(tmp_path), 3, None, None, {})
    for broker in planned:
        Path(broker.data).mkdir()
    with pytest.raises(StorageError, match="--brokers"):
        opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broker-1",
        "broker-2",
        "broker-3",
        "cluster.properties",
    ]
    opened(Path(planned[0].data)).close()


def test_a_file_in_place_of_the_directory_is_said_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("")
    with pytest.raises(StorageError, match="is a file: name a directory"):
        opened(file)


@pytest.mark.parametrize("left", [None, "", "garbage\n"])
def test_data_whose_owner_is_not_known_any_more_is_not_taken_over(tmp_path: Path, left: str | None) -> None:
    """A broker that made up a new identity would wait for ever for the voters that its metadata names."""
    opened(tmp_path).close()
    (tmp_path / "__cluster_metadata-0").mkdir()
    identity = tmp_path / "meta.properties"
    identity.unlink()
    if left is not None:
        identity.write_text(left)
    with pytest.raises(StorageError, match=r"meta\.properties"):
        opened(tmp_path)
    assert (identity.read_text() if identity.exists() else None) == left


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_directory_that_kafka_did_not_leave_properly_is_not_taken_over(tmp_path: Path, is_clean: bool) -> None:
    """Gaps that its compaction left would be taken for what the crash took."""
    opened(tmp_path).close()
    state = tmp_path / "__cluster_metadata-0" / "quorum-state"
    state.parent.mkdir()
    state.write_text('{"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"}')
    if is_clean:
        (tmp_path / ".kafka_cleanshutdown").write_text("")
        opened(tmp_path).close()
    else:
        with pytest.raises(StorageError, match="start it once more"):
            opened(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


MINUTE_MS = 60_000


class SettableLoop(asyncio.SelectorEventLoop):
    """A loop whose time can be moved."""

    ahead_seconds = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_seconds


def in_settable_time(story: Callable[[SettableLoop], Awaitable[None]]) -> None:
    loop = SettableLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(asyncio.wait_for(story(loop), 3600))


def deleted_names(following: Following) -> list[str]:
    return [name for name in following.disk.listdir("/data") if name.endswith("-delete")]


def begun() -> Following:
    """A broker with two partitions that have records."""
    following = Following(LeaderStub(2))
    for index in range(2):
        append(following.log(index), batch_of(3))
    return following


def drop(following: Following, delay_ms: int) -> None:
    following.directories.delete(following.table.drop(TOPIC_ID), delay_ms)


def test_a_deleted_partition_frees_its_name_at_once_and_its_room_after_the_delay() -> None:
    async def story(loop: SettableLoop) -> None:
        following = begun()
        drop(following, MINUTE_MS)
        await following.directories.deletions_settled()
        assert sorted(name.split(".")[0] for name in deleted_names(following)) == ["orders-0", "orders-1"]
        following.host(6)
        assert following.log().log_end_offset == 0

        loop.ahead_seconds += 59
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(deleted_names(following)) == 2
        loop.ahead_seconds += 2
        await asyncio.wait(following.directories._removals)
        assert deleted_names(following) == []
        assert following.disk.listdir("/data/orders-0"), "the new one stays"

    in_settable_time(story)


def test_who_waits_for_a_sync_of_a_topic_that_is_deleted_meanwhile_does_not_bring_it_back() -> None:
    """Else one that is created with its name finds a directory with another id there, and cannot be used."""

    class SlowDisk(Inline):
        """Its syncs end when the test says so."""

        begun, may_end = asyncio.Event(), asyncio.Event()

        async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            self.begun.set()
            await self.may_end.wait()
            return await super().run(function, *args, **kwargs)

    async def story(_: SettableLoop) -> None:
        following, slow = begun(), SlowDisk()
        flushes = Flushes(replace(following.world, offload=slow), following.table.directory_failed)
        waiting = asyncio.ensure_future(flushes.flush(following.partition()))
        await slow.begun.wait()
        drop(following, MINUTE_MS)
        await following.directories.deletions_settled()
        slow.may_end.set()
        with pytest.raises(ApiError):
            await waiting
        assert not following.disk.exists("/data/orders-0")

    in_settable_time(story)


def test_many_partitions_that_wait_for_their_removal_are_one_task() -> None:
    async def story(_: SettableLoop) -> None:
        following = begun()
        before = len(asyncio.all_tasks())
        drop(following, MINUTE_MS)
        await following.directories.deletions_settled()
        assert len(asyncio.all_tasks()) == before + 1
        await following.directories.close_logs([])
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before

    in_settable_time(story)


def test_a_stop_leaves_what_is_not_due_to_the_next_start() -> None:
    async def story(_: SettableLoop) -> None:
        following = begun()
        drop(following, MINUTE_MS)
        await following.directories.close_logs(following.table)
        following.directories.close()
        assert len(deleted_names(following)) == 2, "it waited for nothing, and what is pending stays"

        again = LogDirectories(following.world, OpenFiles(following.disk, 64), 86_400_000)
        again.open(following.config)
        assert again.was_clean
        again.find_partitions(MetadataImage())
        assert deleted_names(following) == []

    in_settable_time(story)


def test_what_cannot_be_removed_keeps_nothing_else_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: SettableLoop) -> None:
        following = begun()
        remove_tree = following.disk.remove_tree

        def remove_some(path: str) -> None:
            if "orders-0" in path:
                raise OSError(5, "Input/output error")
            remove_tree(path)

        monkeypatch.setattr(following.disk, "remove_tree", remove_some)
        drop(following, 0)
        await asyncio.gather(*following.directories._removals)
        assert [name.split(".")[0] for name in deleted_names(following)] == ["orders-0"]

    in_settable_time(story)


def stopped_and_begun_again(following: Following) -> LogDirectories:
    again = LogDirectories(following.world, OpenFiles(following.disk, 64), 86_400_000)
    again.open(following.config)
    again.find_partitions(following.image)
    return again


def test_where_a_log_ends_is_known_after_a_clean_stop_without_opening_it() -> None:
    async def story(_: SettableLoop) -> None:
        following = Following(LeaderStub(3))
        followed, sole, untouched = (following.partition(index) for index in range(3))
        for partition, high_watermark in ((followed, 2), (sole, 3)):
            append(partition.log, batch_of(3))
            partition.high_watermark = high_watermark
        sole.is_sole = True
        assert following.directories.end_at_rest(untouched) == 0
        await following.directories.close_logs(following.table)
        following.directories.close()

        again = stopped_and_begun_again(following)
        assert [again.end_at_rest(partition) for partition in (followed, sole, untouched)] == [2, 3, 0]
        again.set_corrupt(sole, "a bit")
        assert again.end_at_rest(sole) is None
        again.unopened["/other"] = "it is not there"
        assert again.end_at_rest(untouched) is None

    in_settable_time(story)


def test_after_a_crash_only_the_log_knows_where_it_ends() -> None:
    async def story(_: SettableLoop) -> None:
        following = begun()
        following.directories.close()
        again = stopped_and_begun_again(following)
        assert again.end_at_rest(following.partition()) is None

    in_settable_time(story)


def test_what_was_stored_of_a_topic_does_not_count_for_one_with_its_name_after_two_crashes() -> None:
    """It was deleted, and created again, while this broker was down or could not carry it out. Below the old start
    everything is deleted, and above the new end something would be missing."""

    async def story(_: SettableLoop) -> None:
        following = begun()
        tps = [partition.topic_partition for partition in following.table]
        (directory,) = following.directories.online
        directory.checkpoint(log_start_offsets=dict.fromkeys(tps, 2), recovery_points=dict.fromkeys(tps, 3))

        async def restarted(topic_id: UUID) -> tuple[LogDirectories, PartitionTable]:
            again = LogDirectories(following.world, OpenFiles(following.disk, 64), 86_400_000)
            again.open(following.config)
            topic = TopicImage(TOPIC, topic_id, following.image.topics[TOPIC].partitions)
            image = MetadataImage(topics={TOPIC: topic}, topics_by_id={topic_id: topic})
            again.find_partitions(image)
            table = PartitionTable(OWN, again.open_log, again.fail, following.table.neighbours)
            table.host(topic, following.topic_config)
            await again.recover(table, 1)
            return again, table

        following.directories.close()
        directories, table = await restarted(UUID(int=8))
        append(table.hosted(TOPIC, 0).log, batch_of(1))
        directories.close()
        _, table = await restarted(UUID(int=8))
        log = table.hosted(TOPIC, 0).log
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)

    in_settable_time(story)
