"""Brokers, producer ids and elections."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.core.controller.builder import apply
from ottla.core.controller.commands import (
    AllocateProducerIds,
    ElectLeaders,
    NewTopic,
    RegisterBroker,
)
from ottla.core.controller.records import PartitionChangeRecord, UnregisterBrokerRecord
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import Cluster


def test_a_broker_that_comes_back_has_a_higher_epoch() -> None:
    cluster = Cluster()
    first = cluster.image.brokers[1].epoch
    assert cluster.register(1) > first
    assert cluster.image.brokers[1].epoch > first


def test_after_an_unclean_stop_its_partitions_begin_a_new_leader_epoch() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(NewTopic("t", assignments=[(0, [1]), (1, [2])]))
    cluster.register(1, clean_start=True)
    assert [partition.leader_epoch for partition in cluster.image.topics["t"].partitions] == [0, 0]
    cluster.register(1, clean_start=False)
    assert [partition.leader_epoch for partition in cluster.image.topics["t"].partitions] == [1, 0]


def test_a_broker_of_another_cluster_is_turned_away() -> None:
    command = RegisterBroker(broker_id=1, incarnation_id=UUID(int=1), cluster_id="other", endpoints=())
    with pytest.raises(ApiError) as refused:
        Cluster().submit(command)
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_no_producer_id_is_given_out_twice() -> None:
    cluster = Cluster(brokers=2)
    blocks = [cluster.submit(AllocateProducerIds(1 + i % 2, cluster.image.brokers[1 + i % 2].epoch)) for i in range(6)]
    ids = [block.first + i for block in blocks for i in range(block.size)]
    assert len(set(ids)) == len(ids) == 6000
    assert cluster.replayed().next_producer_id == 6000


def test_only_a_registered_broker_gets_producer_ids() -> None:
    with pytest.raises(ApiError) as refused:
        Cluster().submit(AllocateProducerIds(7, 0))
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    with pytest.raises(ApiError) as refused:
        Cluster().submit(AllocateProducerIds(1, 99))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def with_leader(cluster: Cluster, leader: int, isr: tuple[int, ...]) -> None:
    topic = cluster.image.topics["t"]
    record = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=leader, isr=isr)
    cluster.controller.image, _ = apply(cluster.image, [record], offset=cluster.image.offset + 1, epoch=0)


def test_the_preferred_leader_gets_its_partition_back() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2])]))
    with_leader(cluster, 2, (1, 2))
    election = cluster.submit(ElectLeaders(0, [("t", 0)]))
    assert [result.outcome.code for result in election.partitions] == [ErrorCode.NONE]
    partition = cluster.image.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 2, 2)


def test_elections_that_cannot_be_are_refused() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2])]))
    election = cluster.submit(ElectLeaders(0, [("t", 0), ("t", 9), ("nope", 0)]))
    assert [tuple(result) for result in election.partitions] == [
        ("t", 0, (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")),
        ("t", 9, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-9")),
        ("nope", 0, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nope")),
    ]
    assert cluster.submit(ElectLeaders(0)).partitions == []
    assert cluster.submit(ElectLeaders(5, [("t", 0)])).outcome == (ErrorCode.INVALID_REQUEST, "Unknown election type 5")
    with_leader(cluster, 2, (2,))
    [result] = cluster.submit(ElectLeaders(0, [("t", 0)])).partitions
    assert result.outcome.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_takes_a_replica_that_lives() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2])]))
    with_leader(cluster, -1, (1,))
    gone = UnregisterBrokerRecord(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch)
    cluster.controller.image, _ = apply(cluster.image, [gone], offset=9, epoch=0)
    [result] = cluster.submit(ElectLeaders(1)).partitions
    partition = cluster.image.topics["t"].partitions[0]
    assert (result.outcome.code, partition.leader, partition.isr) == (ErrorCode.NONE, 2, (2,))
