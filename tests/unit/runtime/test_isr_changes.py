"""What leaders ask of the controller, and what they make of its answers, late ones and none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.core.controller.cluster_commands import AlteredPartition, AlterPartitions
from ottla.core.controller.commands import Outcome
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime import isr_changes
from ottla.runtime.isr_changes import IsrChanges
from tests.unit.runtime.hosted import run
from tests.unit.runtime.replicas import TOPIC, Cluster, broker

OWN_EPOCH = 101


class Controller:
    """Grants what it is asked, unless it was told to answer otherwise."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.asked: list[AlterPartitions] = []
        self.script: list[ErrorCode | ApiError] = []
        self.publishes = True
        """Whether the metadata comes before the answer."""
        self.answered = asyncio.Event()
        self.changes: IsrChanges

    async def submit(self, command: AlterPartitions) -> list[AlteredPartition]:
        await asyncio.sleep(0)
        self.asked.append(command)
        self.answered.set()
        outcome = self.script.pop(0) if self.script else ErrorCode.NONE
        if isinstance(outcome, ApiError):
            raise outcome
        answers = []
        for asked in command.partitions:
            isr = tuple(member.broker_id for member in asked.new_isr)
            if outcome is ErrorCode.NONE:
                self.cluster.change(isr=isr)
                if self.publishes:
                    self.cluster.publish(1)
            state = self.cluster.state
            answers.append(
                AlteredPartition(
                    asked.topic_id,
                    asked.index,
                    Outcome(outcome),
                    state.leader,
                    state.leader_epoch,
                    state.isr,
                    state.partition_epoch,
                )
            )
        return answers

    async def has_answered(self) -> None:
        await self.answered.wait()
        self.answered.clear()
        for _ in range(4):
            await asyncio.sleep(0)

    def isrs(self) -> list[list[tuple[int, int]]]:
        return [[(broker, epoch) for broker, epoch in asked.partitions[0].new_isr] for asked in self.asked]


def scenario_with(
    scenario: Callable[[Cluster, Controller], Awaitable[None]], *, isr: tuple[int, ...] = (1,), min_insync: int = 1
) -> None:
    async def started() -> None:
        cluster = Cluster(2, TopicConfig(min_insync_replicas=min_insync), isr=isr)
        controller = Controller(cluster)
        table = cluster.replicas[1].table
        changes = IsrChanges(table, controller, node_id=1, broker_epoch=lambda: OWN_EPOCH)
        controller.changes = changes
        changes.start()
        try:
            await scenario(cluster, controller)
        finally:
            await changes.stop()

    run(started)


def pending(cluster: Cluster) -> tuple[int, ...] | None:
    assert cluster.leader.replication is not None
    return cluster.leader.replication.pending_isr


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_MS", 1)
    monkeypatch.setattr(isr_changes, "BEHIND_CHECK_MS", 1)


def test_a_follower_that_has_caught_up_is_asked_for_at_once() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        cluster.produce()
        cluster.replicate(2)
        assert controller.asked == []
        cluster.replicate(2)
        await controller.has_answered()
        assert controller.isrs() == [[(1, OWN_EPOCH), (2, 102)]]
        assert (cluster.leader.isr, cluster.leader.partition_epoch) == ((1, 2), 2)

    scenario_with(scenario)


def test_a_follower_that_lags_is_left_out() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        neighbours = cluster.replicas[1].table.neighbours
        cluster.catch_up(2)
        cluster.produce()
        cluster.replicas[1].clock.ms += neighbours.lag_ms_max + 1
        neighbours.lag_ms_max = 1  # Only how often it is looked: the partition has its own by now.
        await controller.has_answered()
        assert controller.isrs() == [[(1, OWN_EPOCH)]]
        assert (cluster.leader.isr, cluster.leader.high_watermark) == ((1,), 1)
        assert (controller.changes.grown, controller.changes.shrunk) == (0, 1)

    scenario_with(scenario, isr=(1, 2))


def test_what_is_refused_is_taken_back_and_asked_again_later() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        controller.script = [ErrorCode.INELIGIBLE_REPLICA]
        cluster.catch_up(2)
        await controller.has_answered()
        assert pending(cluster) is None
        cluster.replicas[1].clock.ms += isr_changes.RETRY_MS
        await controller.has_answered()
        assert cluster.leader.isr == (1, 2)

    scenario_with(scenario)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_while_the_outcome_is_not_known_both_isrs_count(code: ErrorCode) -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        controller.script = [ApiError(code)] * 3
        cluster.catch_up(2)
        await controller.has_answered()
        cluster.produce()
        assert pending(cluster) == (1, 2)
        assert cluster.leader.high_watermark == 0
        while cluster.leader.isr != (1, 2):
            await controller.has_answered()
        assert {tuple(isr) for isr in controller.isrs()} == {((1, OWN_EPOCH), (2, 102))}

    scenario_with(scenario)


def test_newer_metadata_settles_what_was_asked() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        controller.script = [ErrorCode.INVALID_UPDATE_VERSION] * 1000
        cluster.catch_up(2)
        await controller.has_answered()
        assert pending(cluster) == (1, 2)
        cluster.change(isr=(1, 2))
        cluster.publish(1)
        count = len(controller.asked)
        await asyncio.sleep(0.01)
        assert pending(cluster) is None
        assert len(controller.asked) <= count + 1

    scenario_with(scenario)


def test_an_answer_that_overtakes_the_metadata_acknowledges_nothing() -> None:
    """The minimum may have been raised before the ISR shrank: then broker 2 is still eligible to lead."""

    async def scenario(cluster: Cluster, controller: Controller) -> None:
        controller.publishes = False
        neighbours = cluster.replicas[1].table.neighbours
        cluster.catch_up(2)
        cluster.produce()
        cluster.replicas[1].clock.ms += neighbours.lag_ms_max + 1
        neighbours.lag_ms_max = 1
        await controller.has_answered()
        assert (pending(cluster), cluster.leader.high_watermark) == ((1,), 0)
        cluster.config = TopicConfig(min_insync_replicas=2)
        cluster.replicas[1].table.set_config(TOPIC, cluster.config)
        cluster.publish(1)
        assert (cluster.leader.isr, pending(cluster), cluster.leader.high_watermark) == ((1,), None, 0)

    scenario_with(scenario, isr=(1, 2))


def test_news_of_other_partitions_of_the_topic_do_not_settle_what_was_asked() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        controller.script = [ApiError(ErrorCode.REQUEST_TIMED_OUT)] * 3
        cluster.catch_up(2)
        await controller.has_answered()
        cluster.publish(1)
        cluster.produce()
        assert pending(cluster) == (1, 2)
        assert cluster.leader.high_watermark == 0, "broker 2 may be in sync by now, and does not have the record"

    scenario_with(scenario)


def test_the_record_of_what_was_granted_does_not_settle_what_was_asked_after_it() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        cluster.catch_up(2)
        await controller.has_answered()
        assert (cluster.leader.isr, cluster.leader.partition_epoch) == ((1, 2), 2)
        replication = cluster.leader.replication
        assert replication is not None
        replication.asked((1,))
        cluster.publish(1)
        assert pending(cluster) == (1,)

    scenario_with(scenario)


def test_a_broker_that_registered_anew_counts_on_nothing_and_asks_again() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        controller.script = [ApiError(ErrorCode.STALE_BROKER_EPOCH)]
        cluster.catch_up(2)
        await controller.has_answered()
        cluster.produce()
        assert pending(cluster) == (1, 2)
        assert cluster.leader.high_watermark == 0, "an earlier question may have been granted"
        await controller.has_answered()
        assert cluster.leader.isr == (1, 2)

    scenario_with(scenario)


def test_who_is_fenced_is_not_asked_for() -> None:
    async def scenario(cluster: Cluster, controller: Controller) -> None:
        cluster.brokers[2] = broker(2, fenced=True)
        cluster.publish()
        cluster.catch_up(2)
        await asyncio.sleep(0.01)
        assert controller.asked == []
        cluster.brokers[2] = broker(2)
        cluster.publish()
        await controller.has_answered()
        assert cluster.leader.isr == (1, 2)

    scenario_with(scenario)
