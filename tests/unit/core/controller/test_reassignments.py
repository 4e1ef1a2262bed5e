"""Replicas move by Kafka's rules, and nothing that was acknowledged goes with those that leave."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ottla.core.controller.cluster_commands import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    ReassignedPartition,
)
from ottla.core.controller.commands import NewTopic, Outcome
from ottla.core.controller.context import Context
from ottla.core.controller.elections import Electorate
from ottla.core.controller.image import PartitionImage
from ottla.core.controller.reassignments import Assignment, assign, progress, reverted, toward
from ottla.core.controller.validation import CollisionIndex
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import Cluster

TOPIC = "t"


def cluster(*replicas: int, brokers: int = 6, configs: dict[str, str] | None = None) -> Cluster:
    made = Cluster(brokers=brokers)
    made.create(NewTopic(TOPIC, assignments=[(0, replicas)], configs=list((configs or {}).items())))
    return made


def partition(of: Cluster) -> PartitionImage:
    return of.image.topics[TOPIC].partitions[0]


def move(of: Cluster, *replicas: int, keep_factor: bool = False) -> Outcome:
    ((topic, index, outcome),) = of.submit(
        AlterReassignments([ReassignedPartition(TOPIC, 0, replicas)], allow_replication_factor_change=not keep_factor)
    )
    assert (topic, index) == (TOPIC, 0)
    return outcome


def cancel(of: Cluster) -> Outcome:
    ((_, _, outcome),) = of.submit(AlterReassignments([ReassignedPartition(TOPIC, 0, None)]))
    return outcome


def in_sync(of: Cluster, *isr: int) -> None:
    """The leader asks for this ISR, and what follows from it happens."""
    context = Context(of.image, BrokerConfig.from_properties(), CollisionIndex(()), of.new_uuid, len(of.log))
    topic = of.image.topics[TOPIC]
    record = assign(Electorate(context), topic, 0, progress(topic.partitions[0], isr))
    assert record is not None
    of.controller._apply((record,), len(of.log))
    of.log.append(record)


def test_new_replicas_come_before_old_ones_go() -> None:
    moved = cluster(1, 2, 3)
    assert move(moved, 4, 5, 6).code is ErrorCode.NONE
    now = partition(moved)
    assert (now.replicas, now.adding, now.removing) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert (now.isr, now.leader, now.leader_epoch) == ((1, 2, 3), 1, 0)
    assert len(now.directories) == 6
    in_sync(moved, 1, 2, 3, 4, 5)
    assert partition(moved).removing == (1, 2, 3)
    in_sync(moved, 1, 2, 3, 4, 5, 6)
    now = partition(moved)
    assert (now.replicas, now.isr, now.adding, now.removing) == ((4, 5, 6), (4, 5, 6), (), ())
    assert (now.leader, now.leader_epoch, len(now.directories)) == (4, 1, 3)
    assert moved.replayed() == moved.image


def test_a_leader_that_stays_begins_a_new_epoch_when_a_replica_goes() -> None:
    moved = cluster(1, 2, 3)
    move(moved, 2, 1, 4)
    in_sync(moved, 1, 2, 3, 4)
    now = partition(moved)
    assert (now.replicas, now.isr, now.leader, now.leader_epoch) == ((2, 1, 4), (1, 2, 4), 1, 1)


def test_what_needs_no_copying_is_done_at_once() -> None:
    moved = cluster(1, 2, 3)
    move(moved, 3, 2, 1)
    now = partition(moved)
    assert (now.replicas, now.leader, now.leader_epoch) == ((3, 2, 1), 1, 0)
    move(moved, 3)
    now = partition(moved)
    assert (now.replicas, now.isr, now.leader, now.leader_epoch) == ((3,), (3,), 3, 1)
    before = len(moved.log)
    assert move(moved, 3).code is ErrorCode.NONE
    assert len(moved.log) == before


def test_a_replica_out_of_sync_that_is_to_stay_is_waited_for() -> None:
    moved = cluster(1, 2, 3)
    in_sync(moved, 1, 2)
    move(moved, 2, 3)
    assert partition(moved).removing == (1,)
    in_sync(moved, 1, 2, 3)
    assert (partition(moved).replicas, partition(moved).leader) == ((2, 3), 2)


def test_a_move_that_is_stopped_leaves_what_was() -> None:
    moved = cluster(1, 2, 3)
    move(moved, 4, 5, 6)
    in_sync(moved, 1, 2, 3, 4)
    assert cancel(moved).code is ErrorCode.NONE
    now = partition(moved)
    assert (now.replicas, now.isr, now.adding, now.removing) == ((1, 2, 3), (1, 2, 3), (), ())
    assert (now.leader, now.leader_epoch) == (1, 1)
    assert cancel(moved).code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_the_last_of_several_moves_is_stopped_to_where_the_first_began() -> None:
    moved = cluster(1, 2, 3)
    move(moved, 4, 5, 6)
    move(moved, 4, 5, 2)
    now = partition(moved)
    assert (now.replicas, now.adding, now.removing) == ((4, 5, 2, 1, 3, 6), (4, 5, 6), (1, 3, 6))
    cancel(moved)
    assert sorted(partition(moved).replicas) == [1, 2, 3]


def test_back_to_where_it_was_is_done_at_once() -> None:
    moved = cluster(1, 2, 3)
    move(moved, 4, 5, 6)
    in_sync(moved, 1, 2, 3, 5)
    move(moved, 1, 2, 3)
    now = partition(moved)
    assert (now.replicas, now.isr, now.adding, now.removing) == ((1, 2, 3), (1, 2, 3), (), ())


@pytest.mark.parametrize("unclean", [False, True])
def test_only_an_unclean_election_gives_up_the_new_replicas_if_nobody_else_is_in_sync(unclean: bool) -> None:
    moved = cluster(1, 2, configs={"unclean.leader.election.enable": str(unclean).lower()})
    move(moved, 3, 4)
    in_sync(moved, 1, 2, 3)
    in_sync(moved, 3)
    outcome = cancel(moved)
    if unclean:
        assert outcome.code is ErrorCode.NONE
        assert (partition(moved).replicas, partition(moved).isr, partition(moved).leader) == ((1, 2), (1,), 1)
    else:
        assert outcome.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert partition(moved).isr == (3,)


@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("nope", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, 1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, -1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TOPIC, 0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TOPIC, 0, [1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TOPIC, 0, [-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused(topic: str, index: int, replicas: list[int], code: ErrorCode) -> None:
    moved = cluster(1, 2, 3)
    before = moved.image
    answers = moved.submit(AlterReassignments([ReassignedPartition(topic, index, replicas)]))
    assert [(name, at, outcome.code) for name, at, outcome in answers] == [(topic, index, code)]
    assert moved.image == before


def test_one_that_is_refused_does_not_stop_the_others() -> None:
    moved = cluster(1, 2, 3)
    answers = moved.submit(
        AlterReassignments([ReassignedPartition(TOPIC, 7, [1]), ReassignedPartition(TOPIC, 0, [4, 5, 6])])
    )
    assert [outcome.code for _, _, outcome in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert partition(moved).adding == (4, 5, 6)


def test_a_partition_moves_once_in_a_request() -> None:
    moved = cluster(1, 2, 3)
    answers = moved.submit(AlterReassignments([ReassignedPartition(TOPIC, 0, [4]), ReassignedPartition(TOPIC, 0, [5])]))
    assert [outcome.code for _, _, outcome in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert partition(moved).adding == (4,)


def test_the_replication_factor_changes_only_where_that_is_wanted() -> None:
    moved = cluster(1, 2, 3)
    refused = move(moved, 4, 5, keep_factor=True)
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.message == "The replication factor is changed from 3 to 2"
    assert move(moved, 4, 5, 6, keep_factor=True).code is ErrorCode.NONE
    assert move(moved, 1, 2, 6, keep_factor=True).code is ErrorCode.NONE
    assert move(moved, 1, 2, keep_factor=True).code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_too_many_at_once_are_refused_as_a_whole() -> None:
    with pytest.raises(ApiError) as refused:
        cluster(1).submit(AlterReassignments([ReassignedPartition(TOPIC, 0, [1])] * 10_001))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_what_moves_is_listed() -> None:
    moved = cluster(1, 2, 3)
    assert moved.submit(ListReassignments()) == []
    move(moved, 2, 3, 4)
    expected = [OngoingReassignment(TOPIC, 0, (2, 3, 4, 1), (4,), (1,))]
    assert moved.submit(ListReassignments()) == expected
    assert moved.submit(ListReassignments([(TOPIC, 0), (TOPIC, 0), (TOPIC, 5), ("nope", 0)])) == expected
    assert moved.submit(ListReassignments([])) == []


def test_whatever_is_asked_the_isr_keeps_somebody_who_was_in_it() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        replicas = tuple(rng.sample(range(1, 9), rng.randint(1, 4)))
        isr = tuple(rng.sample(replicas, rng.randint(1, len(replicas))))
        now = PartitionImage(replicas=replicas, isr=isr, leader=isr[0])
        original = set(replicas)
        for _ in range(rng.randint(1, 4)):
            target = rng.sample(range(1, 9), rng.randint(1, 4))
            now = _with(now, toward(now, target))
            grown = {*now.isr, *rng.sample(now.replicas, rng.randint(0, len(now.replicas)))}
            if rng.random() < 0.3:
                grown = set(rng.sample(sorted(grown), rng.randint(1, len(grown))))
            after = progress(now, sorted(grown))
            assert set(after.isr) <= grown
            assert after.isr
            assert set(after.isr) <= set(after.replicas)
            now = _with(now, after)
            if not now.adding and not now.removing:
                assert set(now.replicas) == set(target)
                original = set(target)
            else:
                assert set(reverted(now).replicas) == original


def _with(old: PartitionImage, new: Assignment) -> PartitionImage:
    return replace(old, replicas=new.replicas, isr=new.isr, adding=new.adding, removing=new.removing)
