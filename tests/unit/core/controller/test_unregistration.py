"""A broker that is taken out of the metadata leads nothing and is in no ISR."""

from __future__ import annotations

import pytest

from ottla.core.controller.cluster_commands import UnregisterBroker
from ottla.core.controller.commands import NewTopic
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import Cluster


def test_others_take_over() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2]), (1, [2, 3]), (2, [3, 1])]))
    cluster.submit(UnregisterBroker(1))
    partitions = cluster.image.topics["t"].partitions
    assert sorted(cluster.image.brokers) == [2, 3]
    assert [(partition.leader, partition.isr) for partition in partitions] == [(2, (2,)), (2, (2, 3)), (3, (3,))]
    assert [partition.replicas for partition in partitions] == [(1, 2), (2, 3), (3, 1)]
    assert [partition.leader_epoch for partition in partitions] == [1, 0, 0]
    assert cluster.replayed() == cluster.image


def test_what_only_it_had_has_no_leader_and_is_not_given_to_anybody_else() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(NewTopic("t", assignments=[(0, [1])]))
    cluster.submit(UnregisterBroker(1))
    (partition,) = cluster.image.topics["t"].partitions
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))


def test_one_that_is_not_registered_cannot_go() -> None:
    cluster = Cluster(brokers=1)
    with pytest.raises(ApiError) as refused:
        cluster.submit(UnregisterBroker(9))
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.submit(UnregisterBroker(1))
    with pytest.raises(ApiError):
        cluster.submit(UnregisterBroker(1))
    assert cluster.register(1) > 0
