"""Replicas of one partition that ship bytes to each other: their roles, and what is committed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ottla.core.controller.image import ImageDelta, MetadataImage, PartitionImage, TopicImage
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.watching import Watcher
from tests.unit.runtime.hosted import run
from tests.unit.runtime.replicas import TOPIC, TOPIC_ID, Cluster, broker


class Heard(Watcher):
    """Counts what a watcher is told."""

    def __init__(self) -> None:
        self.changes = 0
        self.gone = 0

    def partition_changed(self) -> None:
        self.changes += 1

    def partition_gone(self) -> None:
        self.gone += 1


def code_of(error: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return error.value.code


def restart(cluster: Cluster, node_id: int) -> None:
    """Stop a broker; it hosts nothing before it hears of the metadata, and then nothing of it is open."""
    cluster.partition(node_id).log.close()
    cluster.replicas[node_id].table.drop(TOPIC_ID)


def test_what_is_produced_reaches_every_replica_and_then_is_committed() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        heard = Heard()
        cluster.leader.watch(heard)
        cluster.produce(3)
        assert (cluster.leader.high_watermark, heard.changes) == (0, 0)
        cluster.replicate(2)
        cluster.replicate(2)
        assert cluster.leader.high_watermark == 0
        cluster.replicate(3)
        cluster.replicate(3)
        assert (cluster.leader.high_watermark, heard.changes) == (3, 1)
        cluster.catch_up()
        assert [cluster.partition(n).high_watermark for n in (1, 2, 3)] == [3, 3, 3]
        assert cluster.contents(1) == cluster.contents(2) == cluster.contents(3)

    run(scenario)


def test_only_the_leader_appends_and_only_followers_follow() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        with pytest.raises(ApiError) as refused:
            cluster.produce(node_id=2)
        assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ApiError):
            cluster.leader.append_as_follower(memoryview(b""), 0, 0)
        with pytest.raises(ApiError):
            cluster.leader.truncate_to(0)
        with pytest.raises(ApiError):
            cluster.leader.restart_at(0)

    run(scenario)


def test_many_wait_for_the_followers_and_are_told_in_one_go() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        waits = [cluster.leader.replicated(cluster.produce().last_offset + 1) for _ in range(5)]
        cluster.replicate(2)
        assert not any(wait.done() for wait in waits)  # type: ignore[attr-defined]
        cluster.replicate(2)
        assert all(wait.done() for wait in waits)  # type: ignore[attr-defined]
        await cluster.leader.replicated(5)

    run(scenario)


def test_who_waits_for_an_old_leader_learns_that_it_is_none() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        old, heard = cluster.leader, Heard()
        old.watch(heard)
        waiting = old.replicated(cluster.produce().last_offset + 1)
        cluster.change(leader=2)
        cluster.publish(1)
        with pytest.raises(ApiError) as lost:
            await waiting
        assert code_of(lost) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (heard.gone, old.watchers, old.leads) == (1, None, False)
        with pytest.raises(ApiError):
            old.replicated(1)

    run(scenario)


def test_a_wait_ends_when_its_time_is_up() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        with pytest.raises(ApiError) as late:
            await cluster.leader.replicated(cluster.produce().last_offset + 1, timeout_ms=1)
        assert code_of(late) is ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_leader_whose_log_parted_is_cut_back_and_nothing_committed_is_lost() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.produce(2)
        cluster.catch_up()
        cluster.produce(5)  # Nobody fetches this before the leader is gone.
        cluster.change(leader=2, isr=(2, 3))
        cluster.publish(2, 3)
        assert cluster.leader.high_watermark == 2
        cluster.produce(3)
        cluster.catch_up(3)
        assert cluster.leader.high_watermark == 5
        cluster.publish(1)
        cluster.catch_up(1)
        assert cluster.contents(1) == cluster.contents(2) == cluster.contents(3)
        assert [epoch for epoch, _ in cluster.partition(1).log.epochs.entries] == [5, 6]

    run(scenario)


def test_a_follower_of_another_epoch_is_refused_and_never_counts() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.produce()
        cluster.change(leader=1)
        cluster.publish(1)
        data = cluster.replicate(2)
        assert data is not None
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        cluster.publish(2, 3)
        cluster.catch_up()
        assert cluster.leader.high_watermark == 1

    run(scenario)


def test_a_new_leader_says_so_until_its_followers_have_told_it_what_is_committed() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.produce(4)
        for follower in (2, 3, 2, 3):
            cluster.replicate(follower)
        assert (cluster.leader.high_watermark, cluster.partition(2).high_watermark) == (4, 0)
        cluster.change(leader=2)
        cluster.publish()
        was_catching_up = cluster.leader.is_catching_up
        cluster.catch_up()
        assert (was_catching_up, cluster.leader.is_catching_up, cluster.leader.high_watermark) == (True, False, 4)

    run(scenario)


def test_too_few_in_sync_replicas_commit_nothing_and_take_nothing() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.change(isr=(1,))
        cluster.publish(1)
        with pytest.raises(ApiError) as refused:
            cluster.leader.check_in_sync(2)
        assert code_of(refused) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.leader.is_under_min_insync
        cluster.produce()
        assert cluster.leader.high_watermark == 0
        cluster.config = TopicConfig(min_insync_replicas=1)
        cluster.replicas[1].table.set_config(TOPIC, cluster.config)
        assert cluster.leader.high_watermark == 1

    run(scenario)


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    async def scenario() -> None:
        cluster = Cluster(1, TopicConfig(min_insync_replicas=3))
        cluster.leader.check_in_sync(3)
        cluster.produce()
        assert (cluster.leader.is_sole, cluster.leader.high_watermark) == (True, 1)

    run(scenario)


def test_a_sole_replica_that_gets_followers_waits_for_them_and_goes_on_alone_when_they_leave() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig())
        table = cluster.replicas[1].table
        table.drop(TOPIC_ID)
        alone = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=5, partition_epoch=1)
        both = cluster.state
        cluster.state = alone
        cluster.publish(1)
        cluster.produce()
        assert (cluster.leader.is_sole, cluster.leader.high_watermark) == (True, 1)
        cluster.state = both
        cluster.change(isr=(1, 2))
        cluster.publish()
        cluster.produce()
        assert (cluster.leader.is_sole, cluster.leader.high_watermark) == (False, 1)
        cluster.catch_up(2)
        assert cluster.leader.high_watermark == 2
        cluster.produce()
        cluster.state = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=5, partition_epoch=9)
        removed = cluster.partition(2)
        cluster.publish()
        assert (cluster.leader.is_sole, cluster.leader.high_watermark) == (True, 3)
        assert removed.gone

    run(scenario)


def test_a_sole_replica_that_gets_followers_before_its_log_was_opened_stays_readable() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        both = cluster.state
        cluster.state = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=5, partition_epoch=2)
        cluster.publish()
        cluster.produce(3)
        restart(cluster, 1)
        cluster.publish(1)
        assert cluster.leader.log_or_none is None
        cluster.state = replace(both, isr=(1,), partition_epoch=3)
        cluster.publish()
        assert (cluster.leader.log.log_end_offset, cluster.leader.high_watermark) == (3, 3)
        cluster.produce()
        assert cluster.leader.high_watermark == 3

    run(scenario)


def test_a_replica_that_followed_since_it_was_alone_does_not_take_its_end_for_committed() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce(3)
        restart(cluster, 1)
        both = cluster.state
        cluster.state = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=5, partition_epoch=2)
        cluster.publish(1)
        cluster.state = replace(both, leader=2, leader_epoch=6, partition_epoch=3)
        cluster.publish()
        cluster.change(leader=1)
        cluster.publish()
        assert (cluster.leader.log.log_end_offset, cluster.leader.high_watermark) == (3, 0)

    run(scenario)


def test_an_append_that_asks_for_a_flush_counts_when_it_is_synced() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig(flush_messages=1))
        cluster.produce()
        cluster.catch_up(2)
        assert cluster.leader.high_watermark == 0
        await cluster.replicas[1].flushes.flush(cluster.leader)
        assert cluster.leader.high_watermark == 1

    run(scenario)


def test_who_left_the_isr_after_the_minimum_was_raised_lacks_nothing_acknowledged() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig(min_insync_replicas=1))
        cluster.catch_up()
        cluster.produce()
        cluster.change(isr=(1,))
        topic = TopicImage(TOPIC, TOPIC_ID, (replace(cluster.state, elr=(2,)),))
        brokers = {1: broker(1), 2: broker(2, fenced=True)}
        image = MetadataImage(cluster_id="c", brokers=brokers, topics={TOPIC: topic}, topics_by_id={TOPIC_ID: topic})
        # Both changes come in one piece: the minimum went up, and then broker 2 was out of reach.
        delta = ImageDelta(
            partitions_changed={TOPIC_ID: frozenset({0})},
            configs_changed=((ResourceType.TOPIC, TOPIC),),
            brokers_changed=frozenset({2}),
        )
        raised = TopicConfig(min_insync_replicas=2)
        cluster.replicas[1].table.follow(image, delta, lambda _name: raised, lambda _removed: None)
        assert (cluster.leader.isr, cluster.leader.high_watermark) == ((1,), 0)

    run(scenario)


def test_the_start_of_the_log_is_that_of_the_last_replica_that_follows_it() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce()
        cluster.produce()
        cluster.catch_up()
        cluster.leader.log.delete_records_before(1)
        waiting = asyncio.ensure_future(cluster.leader.deleted_everywhere(1, 60_000))
        assert cluster.leader.low_watermark == 0
        cluster.replicate(2)
        assert cluster.partition(2).log.log_start_offset == 1
        cluster.replicate(2)
        await waiting
        assert cluster.leader.low_watermark == 1

    run(scenario)


def test_a_follower_that_is_begun_anew_forgets_its_high_watermark() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce(4)
        cluster.catch_up()
        follower = cluster.partition(2)
        follower.restart_at(0)
        assert (follower.high_watermark, follower.log.log_end_offset) == (0, 0)
        follower.restart_at(9)
        assert (follower.high_watermark, follower.log.log_end_offset) == (9, 9)

    run(scenario)


def test_a_fenced_follower_that_was_catching_up_is_waited_for_no_longer() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig(), isr=(1,))
        cluster.produce()
        cluster.replicate(2)
        cluster.replicate(2)
        cluster.produce()
        assert cluster.leader.high_watermark == 1
        cluster.brokers[2] = broker(2, fenced=True)
        cluster.replicas[1].table.brokers_changed(cluster.brokers)
        assert cluster.leader.high_watermark == 2

    run(scenario)


def test_each_leader_epoch_starts_somewhere_even_if_nothing_is_written_in_it() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce(3)
        cluster.catch_up()
        cluster.change(leader=2)
        cluster.publish()
        assert cluster.leader.log.epochs.entries[-1] == (6, 3)

    run(scenario)


def test_what_followers_had_in_an_earlier_epoch_counts_for_nothing() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce()
        cluster.catch_up()
        cluster.change(leader=2)
        cluster.change(leader=1)
        cluster.publish(1)  # It never heard that another one led meanwhile.
        assert cluster.leader.replication is not None
        assert cluster.leader.replication.followers[2].end_offset == -1

    run(scenario)


def test_a_follower_takes_nothing_for_committed_that_it_does_not_have() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce()
        cluster.replicate(2)
        follower = cluster.partition(2)
        follower.append_as_follower(memoryview(b""), 99, 0)
        assert follower.high_watermark == 1

    run(scenario)


def test_a_new_leader_has_synced_what_it_got_from_the_one_before() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig(flush_messages=1))
        cluster.produce()
        cluster.replicate(2)
        cluster.change(leader=2)
        cluster.publish()
        cluster.catch_up(1)
        assert cluster.leader.high_watermark == 0
        while cluster.leader.log.flush_due():  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert cluster.leader.high_watermark == 1

    run(scenario)
