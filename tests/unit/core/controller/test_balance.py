"""Preferred leaders get their partitions back, no more at once than allowed."""

from __future__ import annotations

from ottla.core.controller.cluster_commands import BalanceLeaders
from ottla.core.controller.commands import ElectLeaders, NewTopic
from ottla.core.controller.records import PartitionChangeRecord
from tests.unit.core.controller.cluster import Cluster


def leaders(cluster: Cluster) -> list[int]:
    return [partition.leader for partition in cluster.image.topics["t"].partitions]


def unbalanced(partitions: int = 10, away: int = 4) -> Cluster:
    """Broker 1 is preferred everywhere, and broker 2 leads the first few."""
    cluster = Cluster(brokers=2)
    cluster.create(NewTopic("t", assignments=[(index, [1, 2]) for index in range(partitions)]))
    lead(cluster, 2, range(away))
    return cluster


def lead(cluster: Cluster, broker_id: int, partitions: range) -> None:
    topic = cluster.image.topics["t"]
    records = tuple(
        PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=broker_id) for index in partitions
    )
    cluster.controller._apply(records, len(cluster.log))
    cluster.log += records


def test_leadership_goes_back_to_the_first_replica() -> None:
    cluster = unbalanced()
    assert leaders(cluster) == [2] * 4 + [1] * 6
    assert cluster.submit(BalanceLeaders(0, 1000)) == 4
    assert leaders(cluster) == [1] * 10
    assert cluster.submit(BalanceLeaders(0, 1000)) == 0
    assert cluster.replayed() == cluster.image


def test_not_more_than_allowed_move_at_once() -> None:
    cluster = unbalanced()
    assert [cluster.submit(BalanceLeaders(0, 3)) for _ in range(3)] == [3, 1, 0]


def test_a_small_imbalance_may_stay() -> None:
    cluster = unbalanced()
    assert cluster.submit(BalanceLeaders(40, 1000)) == 0
    assert cluster.submit(BalanceLeaders(39, 1000)) == 4


def test_who_is_out_of_sync_or_away_gets_nothing() -> None:
    cluster = unbalanced(partitions=3, away=3)
    topic = cluster.image.topics["t"]
    cluster.controller._apply(
        (PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=(2,)),),
        len(cluster.log),
    )
    assert cluster.submit(BalanceLeaders(0, 1000)) == 2
    assert leaders(cluster) == [2, 1, 1]
    lead(cluster, 2, range(3))
    cluster.controller._apply(
        (PartitionChangeRecord(partition_id=1, topic_id=topic.id, leader=-1),),
        len(cluster.log),
    )
    assert cluster.submit(BalanceLeaders(0, 1000)) == 1
    assert leaders(cluster) == [2, -1, 1]


def test_users_may_ask_for_the_same() -> None:
    cluster = unbalanced()
    election = cluster.submit(ElectLeaders(0, None))
    assert len(election.partitions) == 4
    assert leaders(cluster) == [1] * 10
