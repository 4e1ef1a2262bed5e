"""Leaders ask for another ISR, and brokers tell where their replicas are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.core.controller.builder import apply
from ottla.core.controller.cluster_commands import (
    AlteredPartition,
    AlterPartitions,
    AlterReassignments,
    AssignReplicasToDirectories,
    InSyncReplica,
    PartitionToAlter,
    ReassignedPartition,
    ReplicaDirectory,
)
from ottla.core.controller.commands import ElectLeaders, NewTopic
from ottla.core.controller.records import PartitionChangeRecord
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import Cluster


def a_cluster(min_insync: int = 2) -> Cluster:
    cluster = Cluster(brokers=4, config={"min.insync.replicas": str(min_insync)})
    cluster.create(NewTopic("t", assignments=[(0, [1, 2, 3])]))
    return cluster


def alter(cluster: Cluster, isr: list[int], *, broker_id: int = 1, **changes: Any) -> AlteredPartition:
    state, brokers = cluster.partition(), cluster.image.brokers
    asked = PartitionToAlter(
        cluster.image.topics["t"].id,
        0,
        state.leader_epoch,
        [InSyncReplica(member, brokers[member].epoch if member in brokers else -1) for member in isr],
        state.partition_epoch,
    )._replace(**changes)
    [answer] = cluster.submit(AlterPartitions(broker_id, brokers[broker_id].epoch, [asked]))
    return answer


def test_the_isr_shrinks_and_grows() -> None:
    cluster = a_cluster()
    topic_id = cluster.image.topics["t"].id
    assert alter(cluster, [1, 3]) == AlteredPartition(topic_id, 0, (ErrorCode.NONE, None), 1, 0, (1, 3), 1, 0)  # type: ignore[arg-type]
    assert cluster.partition().elr == ()
    assert alter(cluster, [1]).partition_epoch == 2
    assert cluster.partition().elr == (3,)
    answer = alter(cluster, [1, 2])
    assert (answer.isr, answer.leader_epoch, answer.partition_epoch) == ((1, 2), 0, 3)
    assert cluster.partition().elr == ()
    written = len(cluster.log)
    assert alter(cluster, [1, 2]).partition_epoch == 3
    assert len(cluster.log) == written


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ([1, 2], {"topic_id": UUID(int=9)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"new_isr": [InSyncReplica(1), InSyncReplica(2, 999)]}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_does_not_fit_the_state_of_the_partition_is_refused(
    isr: list[int], changes: dict[str, Any], code: ErrorCode
) -> None:
    cluster = a_cluster()
    topic_id = cluster.image.topics["t"].id
    begun = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)
    cluster.controller.image, _ = apply(cluster.image, [begun], offset=cluster.image.offset + 1, epoch=0)
    before = cluster.image
    assert alter(cluster, isr, **changes).outcome.code is code
    assert cluster.image is before


def test_only_the_leader_may_ask_in_the_life_that_it_leads() -> None:
    cluster = a_cluster()
    assert alter(cluster, [1, 2], broker_id=2).outcome.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError) as refused:
        cluster.submit(AlterPartitions(1, 999, []))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_partition_twice_in_one_request_is_refused_the_second_time() -> None:
    cluster = a_cluster()
    state = cluster.partition()
    asked = PartitionToAlter(cluster.image.topics["t"].id, 0, state.leader_epoch, [InSyncReplica(1)], 0)
    answers = cluster.submit(AlterPartitions(1, cluster.image.brokers[1].epoch, [asked, asked]))
    assert [answer.outcome.code for answer in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_who_is_fenced_or_about_to_stop_or_gone_is_not_taken_in() -> None:
    cluster = a_cluster()
    alter(cluster, [1])
    cluster.fence(2)
    assert alter(cluster, [1, 2]).outcome == (ErrorCode.INELIGIBLE_REPLICA, "Broker 2 is fenced.")
    cluster.heartbeat(3, want_shut_down=True)
    assert alter(cluster, [1, 3]).outcome == (ErrorCode.INELIGIBLE_REPLICA, "Broker 3 is about to stop.")


def test_after_an_unclean_election_the_leader_says_when_it_is_done() -> None:
    cluster = a_cluster()
    for broker_id in (2, 3, 1):
        cluster.fence(broker_id)
    cluster.register(3, fenced=True, clean_start=False)
    cluster.heartbeat(2)
    assert cluster.partition().leader == -1
    cluster.submit(ElectLeaders(1, [("t", 0)]))
    assert (cluster.partition().leader, cluster.partition().leader_recovery_state) == (2, 1)
    cluster.heartbeat(3)
    assert alter(cluster, [2, 3], broker_id=2, leader_recovery_state=1).outcome.code is ErrorCode.INVALID_REQUEST
    assert alter(cluster, [2], broker_id=2, leader_recovery_state=1).outcome.code is ErrorCode.NONE
    answer = alter(cluster, [2, 3], broker_id=2)
    assert (answer.outcome.code, answer.leader_recovery_state) == (ErrorCode.NONE, 0)
    assert cluster.partition().leader_recovery_state == 0


def test_the_last_replica_to_catch_up_ends_a_move() -> None:
    cluster = a_cluster(min_insync=1)
    cluster.submit(AlterReassignments([ReassignedPartition("t", 0, [2, 4])]))
    assert alter(cluster, [1, 2, 3, 4]).outcome.code is ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition()
    assert (state.replicas, state.isr, state.leader, state.adding, state.removing) == ((2, 4), (2, 4), 2, (), ())
    assert state.directories == (UUID(int=1002), UUID(int=1004))


def test_a_replica_that_has_fetched_everything_onto_a_new_disk_is_in_its_directory() -> None:
    cluster = a_cluster()
    new = UUID(int=4000)
    cluster.register(3, clean_start=False, log_dirs=[new])
    assert cluster.partition().isr == (1, 2)
    assert alter(cluster, [1, 2, 3]).isr == (1, 2, 3)
    assert cluster.partition().directories == (UUID(int=1001), UUID(int=1002), new)


def assign(cluster: Cluster, broker_id: int, directory: UUID, **changes: Any) -> ErrorCode:
    replica = ReplicaDirectory(cluster.image.topics["t"].id, 0, directory)._replace(**changes)
    epoch = cluster.image.brokers[broker_id].epoch
    [(asked, outcome)] = cluster.submit(AssignReplicasToDirectories(broker_id, epoch, [replica]))
    assert asked == replica
    return outcome.code


def test_a_broker_says_where_its_replica_is() -> None:
    cluster = a_cluster()
    first, second = UUID(int=1002), UUID(int=4000)
    cluster.register(2, log_dirs=[first, second])
    assert assign(cluster, 2, second) is ErrorCode.NONE
    state = cluster.partition()
    assert (state.directories[1], state.isr, state.leader_epoch) == (second, (1, 2, 3), 0)
    written = len(cluster.log)
    assert assign(cluster, 2, second) is ErrorCode.NONE
    assert len(cluster.log) == written


def test_what_cannot_be_its_place_is_refused() -> None:
    cluster = a_cluster()
    assert assign(cluster, 2, UUID(int=1)) is ErrorCode.INVALID_REQUEST
    assert assign(cluster, 4, UUID(int=1004)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(cluster, 2, UUID(int=1002), topic_id=UUID(int=1)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert assign(cluster, 2, UUID(int=1002), index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError):
        cluster.submit(AssignReplicasToDirectories(2, 999, []))


def test_a_replica_that_begins_anew_is_neither_in_sync_nor_eligible() -> None:
    cluster = a_cluster(min_insync=1)
    alter(cluster, [1])
    fresh = [UUID(int=4000), UUID(int=4001)]
    cluster.register(1, fenced=True, clean_start=False, log_dirs=fresh)
    cluster.heartbeat(1)
    assert (cluster.partition().leader, cluster.partition().elr) == (-1, (1,))
    assert assign(cluster, 1, fresh[0]) is ErrorCode.NONE
    state = cluster.partition()
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), ())


@pytest.mark.parametrize("clean_start", [True, False])
def test_a_sole_replica_whose_disk_was_replaced_leads_where_it_says_that_it_is(clean_start: bool) -> None:
    """Nobody has more than it has, even if that is nothing."""
    cluster = Cluster()
    cluster.create(NewTopic("t", assignments=[(0, [1])]))
    fresh = [UUID(int=4000), UUID(int=4001)]
    cluster.register(1, fenced=True, clean_start=clean_start, log_dirs=fresh)
    cluster.heartbeat(1)
    assert cluster.partition().leader == -1
    assert assign(cluster, 1, fresh[1]) is ErrorCode.NONE
    state = cluster.partition()
    assert (state.leader, state.isr, state.elr, state.directories) == (1, (1,), (), (fresh[1],))
