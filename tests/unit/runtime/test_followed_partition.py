"""A corrupt log is fetched anew where that cannot lose anything, and nowhere else."""

from __future__ import annotations

import pytest

from ottla.model.errors import CorruptLogError
from ottla.runtime.followed_partition import FollowedPartition
from tests.unit.log.support import append, batch_of, read_all
from tests.unit.runtime.leader_stub import LEADER, OWN, Following, LeaderStub
from tests.unit.runtime.test_replica_fetcher import run, write


async def corrupt(following: Following) -> None:
    log = following.log()
    for _ in range(10):
        append(log, batch_of(1), leader_epoch=3)
    log.sync_until(10)
    log.mark_flushed(10)
    await following.directories.checkpoint([following.partition()])
    following.directories.set_corrupt(following.partition(), "bit rot")


@pytest.mark.parametrize("isr", [(LEADER, OWN), (OWN,)])
def test_a_corrupt_log_of_a_replica_that_is_in_sync_stays_as_it_is(isr: tuple[int, ...]) -> None:
    async def scenario() -> None:
        following = Following(LeaderStub())
        following.isr = isr
        following.host(5)
        await corrupt(following)
        with pytest.raises(CorruptLogError):
            await FollowedPartition(following.partition(), following.context).open()
        assert following.disk.listdir("/data/orders-0")

    run(scenario)


def test_a_corrupt_log_is_put_aside_and_fetched_anew_once_it_is_out_of_sync() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        write(leader.logs[0], 12)
        following = Following(leader)
        await corrupt(following)
        following.follow()
        await following.until(lambda: following.fetcher._delayed != {})
        following.isr = (LEADER,)
        following.host(5)
        await following.caught_up()
        assert read_all(following.log()) == read_all(leader.logs[0])
        kept = [name for name in following.disk.listdir("/data") if name.endswith("-stray")]
        assert len(kept) == 1
        assert following.directories.online[0].recovery_points == {}
        await following.fetcher.close()

    run(scenario)


def test_what_a_partition_is_about_to_do_comes_to_nothing_when_its_epoch_is_over() -> None:
    async def scenario() -> None:
        following = Following(LeaderStub())
        followed = FollowedPartition(following.partition(), following.context)
        await followed.open()
        for _ in range(10):
            append(following.log(), batch_of(1), leader_epoch=3)
        following.offload.gate = lambda name: following.host(6)
        await followed.truncate_to(5)
        await followed.restart_at(50)
        assert not followed.is_current
        assert following.log().log_end_offset == 10

    run(scenario)


def test_an_epoch_that_was_led_without_a_write_is_forgotten() -> None:
    async def scenario() -> None:
        following = Following(LeaderStub())
        append(following.log(), batch_of(1), leader_epoch=3)
        following.log().epochs.assign(4, 1)
        followed = FollowedPartition(following.partition(), following.context)
        await followed.open()
        assert followed.asked()[1:3] == (1, 3)

    run(scenario)
