"""Heartbeats, fencing, controlled shutdown."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import pytest

from ottla.api.cluster_view import offline_replicas
from ottla.core.controller.cluster_commands import (
    AlterPartitions,
    AssignReplicasToDirectories,
    BrokerHeartbeat,
    FenceBroker,
    HeartbeatAnswer,
    InSyncReplica,
    PartitionToAlter,
    ReplicaDirectory,
)
from ottla.core.controller.commands import NewTopic
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import Cluster


def cluster_of_three(min_insync: int = 1) -> Cluster:
    cluster = Cluster(brokers=3, config={"min.insync.replicas": str(min_insync)})
    cluster.create(
        NewTopic("t", assignments=[(0, [1, 2, 3]), (1, [2, 3, 1])]), NewTopic("alone", assignments=[(0, [3])])
    )
    return cluster


Leader: TypeAlias = tuple[int, tuple[int, ...]]
"""Who leads, and who is in sync."""


def leaders(cluster: Cluster) -> list[Leader]:
    partitions = [partition for topic in cluster.image.topics.values() for partition in topic.partitions]
    return [(partition.leader, partition.isr) for partition in partitions]


def test_a_broker_serves_when_it_has_seen_its_own_registration() -> None:
    cluster = Cluster(brokers=2)
    epoch = cluster.register(3, fenced=True)
    assert cluster.heartbeat(3, offset=epoch - 1) == HeartbeatAnswer(False, True, False)
    assert cluster.heartbeat(3, offset=epoch, want_fence=True) == HeartbeatAnswer(True, True, False)
    assert cluster.heartbeat(3, offset=epoch) == HeartbeatAnswer(True, False, False)
    assert not cluster.image.brokers[3].fenced
    written = len(cluster.log)
    assert cluster.heartbeat(3) == HeartbeatAnswer(True, False, False)
    assert len(cluster.log) == written


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"), [(9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 99, ErrorCode.STALE_BROKER_EPOCH)]
)
def test_another_life_is_told_so(broker_id: int, epoch: int, code: ErrorCode) -> None:
    command = BrokerHeartbeat(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=9, want_fence=False, want_shut_down=False
    )
    with pytest.raises(ApiError) as refused:
        Cluster().submit(command)
    assert refused.value.code is code


def test_a_fenced_broker_leads_nothing_and_is_in_no_isr() -> None:
    cluster = cluster_of_three()
    assert cluster.fence(3)
    assert leaders(cluster) == [(1, (1, 2)), (2, (2, 1)), (-1, ())]
    assert cluster.partition("alone").elr == (3,)
    assert not cluster.fence(3)
    assert not cluster.submit(FenceBroker(1, 77))
    assert not cluster.submit(FenceBroker(9, 77))
    cluster.heartbeat(3)
    assert leaders(cluster) == [(1, (1, 2)), (2, (2, 1)), (3, (3,))]
    assert cluster.replayed() == cluster.image


def test_a_broker_may_ask_to_be_fenced() -> None:
    cluster = cluster_of_three()
    assert cluster.heartbeat(1, want_fence=True) == HeartbeatAnswer(True, True, False)
    assert cluster.partition().leader == 2


def test_a_broker_hands_over_before_it_stops() -> None:
    cluster = cluster_of_three()
    assert cluster.heartbeat(1, want_shut_down=True) == HeartbeatAnswer(True, False, True)
    broker = cluster.image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown) == (False, True)
    assert leaders(cluster) == [(2, (2, 3)), (2, (2, 3)), (3, (3,))]
    written = len(cluster.log)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert len(cluster.log) == written
    assert cluster.fence(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.register(1, fenced=True)
    assert not cluster.heartbeat(1).is_fenced
    assert cluster.image.brokers[1].active


def test_what_nobody_can_take_stays_until_its_broker_is_gone() -> None:
    cluster = cluster_of_three()
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    assert cluster.partition("alone").leader == 3
    cluster.fence(3)
    assert cluster.partition("alone").leader == -1


def test_the_last_broker_just_stops() -> None:
    cluster = cluster_of_three()
    cluster.fence(1)
    cluster.fence(2)
    written = len(cluster.log)
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    assert len(cluster.log) == written


def test_a_broker_waits_for_others_that_catch_up() -> None:
    cluster = cluster_of_three(min_insync=2)
    cluster.fence(2)
    cluster.heartbeat(2)
    assert cluster.partition().isr == (1, 3)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (1, (1, 3))
    assert catch_up(cluster, 0, [1]) is ErrorCode.NONE
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    assert catch_up(cluster, 0, [1, 2, 3]) is ErrorCode.NEW_LEADER_ELECTED
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (1, 2, 3))
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert catch_up(cluster, 1, [3, 1, 2]) is ErrorCode.INELIGIBLE_REPLICA
    assert catch_up(cluster, 1, [3, 2]) is ErrorCode.NONE
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2, 3))


def catch_up(cluster: Cluster, index: int, isr: list[int]) -> ErrorCode:
    state, brokers = cluster.partition(index=index), cluster.image.brokers
    members = [InSyncReplica(member, brokers[member].epoch) for member in isr]
    asked = PartitionToAlter(cluster.image.topics["t"].id, index, state.leader_epoch, members, state.partition_epoch)
    [answer] = cluster.submit(AlterPartitions(state.leader, brokers[state.leader].epoch, [asked]))
    return answer.outcome.code


def test_a_broker_in_a_hurry_is_fenced_at_once() -> None:
    cluster = cluster_of_three()
    assert cluster.heartbeat(1, want_shut_down=True, want_fence=True).should_shut_down
    assert cluster.image.brokers[1].fenced


def test_what_is_in_a_directory_that_failed_is_led_by_others() -> None:
    cluster = Cluster(brokers=2)
    here, there = UUID(int=4001), UUID(int=4002)
    cluster.register(1, log_dirs=[here, there])
    cluster.create(NewTopic("t", assignments=[(0, [1, 2]), (1, [1, 2])]))
    replicas = [ReplicaDirectory(cluster.image.topics["t"].id, index, at) for index, at in ((0, here), (1, there))]
    cluster.submit(AssignReplicasToDirectories(1, cluster.image.brokers[1].epoch, replicas))
    assert cluster.heartbeat(1, offline=[here]) == HeartbeatAnswer(True, False, False)
    assert leaders(cluster) == [(2, (2,)), (1, (1, 2))]
    assert cluster.image.brokers[1].log_dirs == (there,)
    assert catch_up(cluster, 0, [2, 1]) is ErrorCode.NONE
    written = len(cluster.log)
    cluster.heartbeat(1, offline=[here])
    assert len(cluster.log) == written
    cluster.heartbeat(1, offline=[here, there])
    assert cluster.image.brokers[1].fenced
    assert leaders(cluster) == [(2, (2,)), (2, (2,))]


def test_a_sole_replica_in_a_directory_that_failed_leads_again_when_its_broker_comes_back_with_it() -> None:
    cluster = Cluster()
    here, there = UUID(int=4001), UUID(int=4002)
    cluster.register(1, log_dirs=[here, there])
    cluster.create(NewTopic("t", assignments=[(0, [1]), (1, [1])]))
    replicas = [ReplicaDirectory(cluster.image.topics["t"].id, index, at) for index, at in ((0, here), (1, there))]
    cluster.submit(AssignReplicasToDirectories(1, cluster.image.brokers[1].epoch, replicas))
    cluster.heartbeat(1, offline=[here])
    assert leaders(cluster) == [(-1, ()), (1, (1,))]
    assert (cluster.partition().elr, cluster.partition().last_known_elr) == ((1,), (1,))
    assert offline_replicas(cluster.image, cluster.partition()) == [1]

    for fenced, clean_start in ((False, True), (True, True), (True, False), (False, False)):
        cluster.register(1, log_dirs=[there], fenced=fenced, clean_start=clean_start)
        cluster.heartbeat(1)
        assert leaders(cluster) == [(-1, ()), (1, (1,))]
        cluster.register(1, log_dirs=[here, there], fenced=fenced, clean_start=clean_start)
        cluster.heartbeat(1)
        assert leaders(cluster) == [(1, (1,)), (1, (1,))]
        assert offline_replicas(cluster.image, cluster.partition()) == []


@pytest.mark.parametrize(
    ("replicas", "before", "after", "back"),
    [([1], (1, (1,)), (-1, ()), (1, (1,))), ([1, 2], (1, (1, 2)), (2, (2,)), (2, (2,)))],
)
def test_a_directory_that_failed_before_it_was_reported_takes_along_what_is_reported_late(
    replicas: list[int], before: Leader, after: Leader, back: Leader
) -> None:
    cluster = Cluster(brokers=2)
    here, there = UUID(int=4001), UUID(int=4002)
    cluster.register(1, log_dirs=[here, there])
    cluster.create(NewTopic("t", assignments=[(0, replicas)]))
    cluster.heartbeat(1, offline=[here])
    assert leaders(cluster) == [before], "nobody knows yet where it is"

    reported = [ReplicaDirectory(cluster.image.topics["t"].id, 0, here)]
    [(_, outcome)] = cluster.submit(AssignReplicasToDirectories(1, cluster.image.brokers[1].epoch, reported))
    assert (outcome.code, leaders(cluster)) == (ErrorCode.NONE, [after])

    cluster.register(1, log_dirs=[here, there])
    assert leaders(cluster) == [back]
