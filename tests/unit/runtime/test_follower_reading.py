"""Followers' fetches: when they wake, what they are told, and who is sent to a follower."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.runtime import fetching, replication_waits
from ottla.runtime.fetch_sessions import FetchSession
from ottla.runtime.fetching import GATHERED_MAX, GATHERING_TURNS_MAX, FetchLimits
from ottla.runtime.replication_waits import REGULAR_SINCE
from ottla.wire.fetch_types import PartitionData
from tests.unit.runtime.hosted import run
from tests.unit.runtime.replicas import TOPIC_ID, Cluster, broker

SOON = 0.05


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def consume(cluster: Cluster, at: int, offset: int, *, rack: str = "", followers: bool = True) -> PartitionData:
    session = FetchSession()
    session.reads_followers, session.rack = followers, rack
    session.update(TOPIC_ID, [(0, -1, offset, -1, -1, 1 << 20)])
    rows: list[PartitionData] = []
    limits = FetchLimits(0, 1, 1 << 20, 0, False)
    cluster.replicas[at].fetches().fetch(session, limits, lambda topics: rows.extend(topics[0][1]))
    return rows[0]


def test_a_follower_that_waits_gets_what_is_appended_at_the_end_of_the_turn() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        rows = cluster.ask(2, wait_ms=60_000)
        assert rows == []
        cluster.produce()
        cluster.produce()
        assert rows == []
        await settled()
        (data,) = rows
        assert data.records is not None
        assert data.high_watermark == 0

    run(scenario)


def test_while_each_turn_brings_something_a_follower_waits_a_little_for_more() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        rows = cluster.ask(2, wait_ms=60_000)
        await settled()
        produced = 0
        while not rows:
            cluster.produce()
            produced += 1
            await asyncio.sleep(0)
        assert GATHERING_TURNS_MAX <= produced <= GATHERING_TURNS_MAX + 2
        # One that comes when much is there already waits for no more.
        cluster.catch_up(2)
        rows = cluster.ask(2, wait_ms=60_000)
        for _ in range(GATHERED_MAX):
            cluster.produce()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(rows) == 1

    run(scenario)


class Writers:
    """Producers that wait for both followers of a partition, and come back together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 60.0) -> None:
        # Nobody waits that long: what the test does must end it.
        monkeypatch.setattr(replication_waits, "COME_BACK_SECONDS", seconds)
        self.cluster = Cluster()
        self.waiting: list[Awaitable[None]] = []

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            appended = self.cluster.produce()
            self.waiting.append(self.cluster.leader.replicated(appended.last_offset + 1))

    async def rounds(self, count: int = REGULAR_SINCE + 1, writers: int = 3) -> None:
        for _ in range(count):
            self.write(writers)
            self.cluster.catch_up()
            waiting, self.waiting = self.waiting, []
            await asyncio.gather(*waiting)


def test_a_follower_waits_for_producers_that_come_back_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        writers = Writers(monkeypatch)
        await writers.rounds()
        rows = writers.cluster.ask(2, wait_ms=60_000)
        for _ in range(2):
            writers.write()
            for _ in range(GATHERING_TURNS_MAX):
                await settled()
            assert rows == []
        writers.write()
        await settled()
        ((_, _, high_watermark, *_),) = rows
        assert high_watermark == 3 * (REGULAR_SINCE + 1)
        assert writers.cluster.leader.log.log_end_offset == high_watermark + 3

    run(scenario)


def test_a_follower_does_not_wait_long_for_producers_that_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        writers = Writers(monkeypatch, seconds=SOON)
        await writers.rounds()
        rows = writers.cluster.ask(2, wait_ms=60_000)
        writers.write()
        while not rows:  # That of the fetch itself takes longer than a test may.
            await settled()
        assert rows[0].records is not None

    run(scenario)


def test_a_follower_does_not_wait_for_producers_with_much_or_with_bad_news(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        writers = Writers(monkeypatch)
        await writers.rounds()
        rows = writers.cluster.ask(2, wait_ms=60_000)
        monkeypatch.setattr(fetching, "HELD_BYTES_MAX", 1)
        writers.write()
        await settled()
        assert len(rows) == 1
        monkeypatch.setattr(fetching, "HELD_BYTES_MAX", 1 << 20)
        writers.cluster.catch_up()
        await writers.rounds(REGULAR_SINCE + 2)
        rows = writers.cluster.ask(2, wait_ms=60_000)
        writers.write()
        await settled()
        assert rows == []
        writers.cluster.leader.log.delete_records_before(1)
        writers.cluster.leader.grown()
        await settled()
        assert [row.log_start_offset for row in rows] == [1]

    run(scenario)


def test_that_the_high_watermark_moved_wakes_no_follower_and_is_told_with_the_next_answer() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.produce()
        cluster.catch_up(2)
        rows = cluster.ask(2, wait_ms=int(1000 * SOON))
        cluster.catch_up(3)
        assert cluster.leader.high_watermark == 1
        await settled()
        assert rows == []
        await asyncio.sleep(2 * SOON)
        assert [data.high_watermark for data in rows] == [1]

    run(scenario)


def test_where_consumers_read_from_followers_these_learn_at_once_what_is_committed() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.replicas[2].session.is_eager = True
        cluster.produce()
        cluster.catch_up(2)
        rows = cluster.ask(2, wait_ms=60_000)
        cluster.catch_up(3)
        await settled()
        assert [data.high_watermark for data in rows] == [1]

    run(scenario)


def test_a_follower_learns_at_once_that_its_log_has_parted_and_where_the_log_starts() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.produce(2)
        cluster.catch_up()
        cluster.produce(2)
        cluster.change(leader=2)
        cluster.publish()
        rows = cluster.ask(1, wait_ms=60_000)
        await settled()
        assert rows[0].diverging_epoch == (5, 2)
        assert cluster.leader.replication is not None
        assert cluster.leader.replication.followers[1].end_offset == -1
        cluster.catch_up(1, 3)
        rows = cluster.ask(3, wait_ms=60_000)
        cluster.leader.log.delete_records_before(1)
        cluster.leader.grown()
        await settled()
        assert [data.log_start_offset for data in rows] == [1]

    run(scenario)


def test_a_follower_that_waits_learns_that_another_leads() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        rows = cluster.ask(2, wait_ms=60_000)
        old = cluster.state.leader
        cluster.change(leader=3)
        cluster.publish(old)
        await settled()
        (data,) = rows
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert data.current_leader == (3, 6)

    run(scenario)


def test_who_is_no_replica_gets_nothing() -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        cluster.state = replace(cluster.state, replicas=(1, 2), isr=(1, 2), partition_epoch=2)
        cluster.publish(1)
        cluster.produce()
        (data,) = cluster.ask(3)
        assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert data.records is None

    run(scenario)


def test_a_follower_serves_consumers_below_what_it_knows_to_be_committed() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce()
        cluster.replicate(2)
        assert consume(cluster, 2, 0).records is None
        cluster.catch_up()
        assert consume(cluster, 2, 0).records is not None
        assert consume(cluster, 2, 0, followers=False).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert consume(cluster, 2, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


def test_a_consumer_ahead_of_a_new_leaders_high_watermark_waits_and_is_not_sent_back() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.produce(4)
        for follower in (2, 3, 2, 3):
            cluster.replicate(follower)
        cluster.change(leader=2)
        cluster.publish()
        data = consume(cluster, 2, 4)
        assert (data.error_code, data.records, data.high_watermark) == (0, None, 0)

    run(scenario)


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    async def scenario() -> None:
        cluster = Cluster(3, TopicConfig())
        cluster.brokers = {n: broker(n, rack=f"rack-{n}") for n in (1, 2, 3)}
        cluster.publish()
        cluster.produce()
        cluster.catch_up()
        assert consume(cluster, 1, 0, rack="rack-2").preferred_read_replica == 2
        assert consume(cluster, 1, 0, rack="rack-1").preferred_read_replica == -1
        assert consume(cluster, 1, 0, rack="elsewhere").records is not None
        cluster.brokers[2] = broker(2, rack="rack-2", fenced=True)
        cluster.publish(1)
        assert consume(cluster, 1, 0, rack="rack-2").preferred_read_replica == -1
        cluster.produce()
        assert consume(cluster, 1, 2, rack="rack-3").preferred_read_replica == -1

    run(scenario)


def test_a_throttled_follower_outside_the_isr_gets_what_the_quota_leaves() -> None:
    async def scenario() -> None:
        cluster = Cluster(3, TopicConfig(leader_replication_throttled_replicas=("0:1",)), isr=(1, 2))
        quota = cluster.leader.neighbours.leader_quota
        quota.set_rate(10)
        for _ in range(2):
            cluster.produce()
            cluster.replicate(3)
        assert cluster.partition(3).log.log_end_offset == 1
        cluster.catch_up(2)
        assert cluster.partition(2).log.log_end_offset == 2
        cluster.replicas[1].clock.ms += 3_600_000
        cluster.replicate(3)
        assert cluster.partition(3).log.log_end_offset == 2

    run(scenario)
