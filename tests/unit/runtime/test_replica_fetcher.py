"""A fetcher and a leader: what is written there is here, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from ottla.log.partition_log import PartitionLog
from ottla.model.errors import ErrorCode
from ottla.runtime import replica_fetcher
from ottla.runtime.followed_partition import BATCHES_PER_SLICE
from tests.unit.log.support import ProducerFields, append, batch_of, read_all
from tests.unit.runtime.leader_stub import LEADER, OWN, Following, LeaderStub


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 10)

    asyncio.run(bounded())


def write(log: PartitionLog, count: int = 1, *, epoch: int = 5, size: int = 5) -> None:
    for _ in range(count):
        append(log, batch_of(2, value=b"x" * size), leader_epoch=epoch)


def same(own: PartitionLog, other: PartitionLog) -> bool:
    return read_all(own) == read_all(other) and own.epochs.entries == other.epochs.entries


def test_what_the_leader_writes_is_here() -> None:
    async def scenario() -> None:
        leader = LeaderStub(3)
        following = Following(leader)
        write(leader.logs[0], 40)
        write(leader.logs[2], 7)
        following.follow()
        await following.caught_up()
        for index, log in enumerate(leader.logs):
            assert same(following.log(index), log)
            assert following.partition(index).high_watermark == log.log_end_offset
        # From now on it asks for what changed, and hears of what comes while it waits.
        asked = len(leader.requests)
        write(leader.logs[1])
        leader.high_watermarks[1] = 0
        leader.changed()
        await following.caught_up()
        assert len(leader.requests) - asked <= 2
        assert [row.index for _, rows in leader.requests[-1].topics for row in rows] == [1]
        assert following.partition(1).high_watermark == 0
        request = leader.requests[-1]
        assert (request.replica_id, request.replica_epoch) == (OWN, 99)
        await following.fetcher.close()

    run(scenario)


def test_a_large_answer_leaves_the_loop_its_turns() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader)
        write(leader.logs[0], 1600)
        seen: list[int] = []

        async def others() -> None:
            while True:
                seen.append(following.log().log_end_offset)
                await asyncio.sleep(0)

        following.follow()
        beside = asyncio.ensure_future(others())
        await following.caught_up()
        beside.cancel()
        assert max(after - before for before, after in pairwise(seen)) <= 2 * BATCHES_PER_SLICE
        assert same(following.log(), leader.logs[0])
        await following.fetcher.close()

    run(scenario)


def test_an_answer_that_takes_too_long_where_it_lies_is_left_to_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        leader = LeaderStub(3)
        following = Following(leader)
        following.follow()
        await following.caught_up()
        monkeypatch.setattr(replica_fetcher, "REPLY_SECONDS_MAX", -1.0)
        for log in leader.logs:
            write(log, 3)
        leader.changed()
        await following.caught_up()
        for index, log in enumerate(leader.logs):
            assert same(following.log(index), log)
            assert following.partition(index).high_watermark == log.log_end_offset
        await following.fetcher.close()

    run(scenario)


def test_a_log_that_parted_is_cut_and_goes_on() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        write(leader.logs[0], 3, epoch=1)
        write(leader.logs[0], 3, epoch=5)
        following = Following(leader)
        own = following.log()
        write(own, 3, epoch=1)
        for _ in range(9):
            append(own, batch_of(1, producer=ProducerFields(1, 0, own.log_end_offset)), leader_epoch=2)
        own.sync_until(own.log_end_offset)
        own.mark_flushed(own.log_end_offset)
        await following.directories.checkpoint([following.partition()])
        stored = following.directories.online[0].recovery_points
        assert list(stored.values()) == [15]
        steps: list[tuple[str, int, int]] = []
        following.offload.gate = lambda name: steps.append((name, next(iter(stored.values())), own.log_end_offset))
        following.follow()
        await following.caught_up()
        assert same(own, leader.logs[0])
        # What is stored is lower before the log is cut: a crash in between is no corruption. The cut is synced at once.
        assert steps == [("producers_at", 15, 15), ("write", 15, 15), ("sync_truncation", 0, 6)]
        await following.fetcher.close()

    run(scenario)


def test_a_leader_without_what_follows_is_begun_with_anew_where_it_starts() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        write(leader.logs[0], 30)
        leader.logs[0].delete_records_before(41)  # Inside of the batch at 40.
        following = Following(leader)
        append(following.log(), batch_of(3), leader_epoch=4)
        following.follow()
        await following.caught_up()
        own = following.log()
        assert (own.log_start_offset, own.log_end_offset) == (41, 60)
        assert read_all(own) == read_all(leader.logs[0])
        assert following.partition().high_watermark == 60
        await following.fetcher.close()

    run(scenario)


def test_the_start_follows_the_leaders() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader)
        write(leader.logs[0], 30)
        following.follow()
        await following.caught_up()
        leader.logs[0].delete_records_before(20)
        leader.changed()
        await following.until(lambda: following.log().log_start_offset == 20)
        await following.fetcher.close()

    run(scenario)


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_an_error_of_one_partition_does_not_hold_up_the_others(error: ErrorCode) -> None:
    async def scenario() -> None:
        leader = LeaderStub(2)
        following = Following(leader)
        leader.errors[0] = error
        write(leader.logs[0], 3)
        write(leader.logs[1], 3)
        following.follow()
        await following.until(lambda: following.log(1).log_end_offset == 6)
        assert following.log(0).log_end_offset == 0
        leader.errors.clear()
        leader.changed()
        await following.caught_up()
        await following.fetcher.close()

    run(scenario)


def test_a_new_epoch_of_the_same_leader_is_taken_up_at_once() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader, {"replica.fetch.wait.max.ms": "60000", "replica.socket.timeout.ms": "90000"})
        write(leader.logs[0], 3)
        following.follow()
        await following.caught_up()
        # The leader's answer is still a minute away; the new question makes it come at once.
        leader.epoch = 6
        leader.logs[0].epochs.assign(6, 6)
        following.host(6)
        following.follow()
        write(leader.logs[0], 3, epoch=6)
        await following.caught_up()
        assert same(following.log(), leader.logs[0])
        await following.fetcher.close()

    run(scenario)


def test_a_replica_that_went_and_came_back_at_once_is_named_again() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader)
        following.follow()
        await following.caught_up()
        asked = len(leader.requests)
        # Its log is as empty as it was, so the question is the same; but the leader has counted it out meanwhile.
        following.follow()
        write(leader.logs[0])
        leader.changed()
        await following.caught_up()
        named = [row.fetch_offset for request in leader.requests[asked:] for _, rows in request.topics for row in rows]
        assert named[0] == 0
        await following.fetcher.close()

    run(scenario)


def test_a_leader_that_is_away_is_tried_until_it_is_back() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader)
        leader.unreachable = True
        write(leader.logs[0], 3)
        following.follow()
        await following.until(lambda: len(leader.requests) > 3)
        leader.unreachable = False
        await following.caught_up()
        await following.fetcher.close()

    run(scenario)


@pytest.mark.parametrize("has_room", [True, False])
def test_a_session_that_is_lost_or_never_was(has_room: bool) -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        leader.has_room = has_room
        following = Following(leader, {"replica.fetch.wait.max.ms": "5"})
        following.follow()
        for _ in range(3):
            write(leader.logs[0])
            leader.changed()
            await following.caught_up()
            leader.forget_sessions()
        assert same(following.log(), leader.logs[0])
        await following.fetcher.close()

    run(scenario)


def test_who_leads_by_now_takes_nothing_any_more() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader)
        following.follow()
        await following.caught_up()
        following.host(6, leader=OWN)
        write(leader.logs[0], 3)
        leader.changed()
        await following.until(lambda: len(leader.requests) > 3)
        assert following.log().log_end_offset == 0
        following.fetcher.release((following.partition().topic_id, 0))
        assert len(following.fetcher) == 0
        await following.fetcher.close()

    run(scenario)


def test_where_a_flush_is_asked_for_only_what_is_synced_counts() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader, flush_messages=1)
        told: list[tuple[int, int]] = []
        following.follow()
        for _ in range(3):
            write(leader.logs[0])
            leader.changed()
            await following.caught_up()
            told.append((leader.fetched[0], following.log().recovery_point))
        assert told == [(2, 2), (4, 4), (6, 6)]
        await following.fetcher.close()

    run(scenario)


def test_a_damaged_answer_is_not_taken_and_asked_for_again() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(leader)
        write(leader.logs[0], 3)
        file = leader.logs[0].active.log.get()
        at = leader.logs[0].active.size - 3
        good = file.pread(1, at)
        file.pwrite(bytes([good[0] ^ 1]), at)
        following.follow()
        await following.until(lambda: len(leader.requests) > 4)
        assert following.log().log_end_offset == 4
        file.pwrite(good, at)
        await following.caught_up()
        await following.fetcher.close()

    run(scenario)


def test_a_throttled_replica_pauses_until_it_is_in_sync() -> None:
    async def scenario() -> None:
        leader = LeaderStub()
        following = Following(
            leader,
            {"replica.fetch.max.bytes": "2000"},
            follower_replication_throttled_replicas=(f"0:{OWN}",),
        )
        following.quota.set_rate(1000)
        write(leader.logs[0], 20, size=400)
        following.isr = (LEADER,)
        following.host(5)
        following.follow()
        await following.until(lambda: following.log().log_end_offset >= 4)
        before_ms = following.clock.ms
        await following.until(lambda: following.log().log_end_offset >= 8)
        assert following.clock.ms - before_ms > 500
        await following.fetcher.close()

    run(scenario)
