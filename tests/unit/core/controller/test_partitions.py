"""Elections that users ask for: the preferred leader, or any replica that lives."""

from __future__ import annotations

from typing import Any

from ottla.core.controller.commands import ElectLeaders, NewTopic
from ottla.core.controller.image import PartitionImage
from ottla.core.controller.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.controller.cluster import Cluster

PREFERRED, UNCLEAN = 0, 1


def state(fenced: tuple[int, ...] = (), **changes: Any) -> Cluster:
    """Topic t with one partition on brokers 1, 2 and 3, after these changes."""
    cluster = Cluster(brokers=3)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2, 3])]))
    records = [
        BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=cluster.image.brokers[broker].epoch, fenced=True)
        for broker in fenced
    ]
    change = PartitionChangeRecord(partition_id=0, topic_id=cluster.image.topics["t"].id, **changes)
    cluster.controller._apply((*records, change), len(cluster.log))
    return cluster


def elect(cluster: Cluster, kind: int) -> tuple[ErrorCode, PartitionImage]:
    (outcome,) = cluster.submit(ElectLeaders(kind, [("t", 0)])).partitions
    return outcome.outcome.code, cluster.image.topics["t"].partitions[0]


def test_the_preferred_leader_leads_again() -> None:
    code, now = elect(state(leader=2), PREFERRED)
    assert (code, now.leader, now.isr) == (ErrorCode.NONE, 1, (1, 2, 3))
    assert now.leader_epoch == 2


def test_a_preferred_leader_must_be_in_sync_and_there() -> None:
    assert elect(state(leader=2, isr=(2, 3)), PREFERRED)[0] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(state(fenced=(1,), leader=2), PREFERRED)[0] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_who_leads_already_need_not_be_elected() -> None:
    assert elect(state(isr=(1,)), PREFERRED)[0] is ErrorCode.ELECTION_NOT_NEEDED
    assert elect(state(leader=2), UNCLEAN)[0] is ErrorCode.ELECTION_NOT_NEEDED


def test_without_the_preferred_one_a_partition_without_leader_gets_another() -> None:
    code, now = elect(state(fenced=(1,), leader=-1, isr=(2, 3)), PREFERRED)
    assert (code, now.leader, now.isr) == (ErrorCode.NONE, 2, (2, 3))


def test_an_unclean_election_takes_first_who_lost_nothing() -> None:
    code, now = elect(state(fenced=(1,), leader=-1, isr=(1,), eligible_leader_replicas=()), UNCLEAN)
    assert (code, now.leader, now.isr) == (ErrorCode.NONE, 2, (2,))
    code, now = elect(state(fenced=(1,), leader=-1, isr=(), eligible_leader_replicas=(1, 3)), UNCLEAN)
    assert (code, now.leader, now.isr) == (ErrorCode.NONE, 3, (3,))


def test_nobody_is_elected_where_nobody_lives() -> None:
    cluster = state(fenced=(1, 2, 3), leader=-1)
    code, now = elect(cluster, UNCLEAN)
    assert (code, now.leader) == (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, -1)
