"""A broker starts: for the first time, again, after a crash, with another one's id, with a new disk."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.core.controller.builder import apply
from ottla.core.controller.commands import NewTopic, RegisterBroker
from ottla.core.controller.records import BrokerEndpoint, FeatureLevelRecord, SupportedFeature
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import CLUSTER_ID, Cluster


def registration(broker_id: int = 1, incarnation: int = 500, port: int | None = None, **others: Any) -> RegisterBroker:
    arguments: dict[str, Any] = {
        "log_dirs": [UUID(int=1000 + broker_id)],
        "fenced": True,
        "endpoints": [BrokerEndpoint("PLAINTEXT", "127.0.0.1", port or 9000 + broker_id, 0)],
    }
    arguments.update(others)
    return RegisterBroker(broker_id=broker_id, incarnation_id=UUID(int=incarnation), cluster_id=CLUSTER_ID, **arguments)


def three_brokers(min_insync: int = 2) -> Cluster:
    cluster = Cluster(brokers=3, config={"min.insync.replicas": str(min_insync)})
    cluster.create(NewTopic("t", assignments=[(0, [1, 2, 3])]))
    return cluster


def refusal(cluster: Cluster, command: RegisterBroker) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        cluster.submit(command)
    return refused.value.code


def test_the_same_life_registers_twice_and_has_one_epoch() -> None:
    cluster = three_brokers()
    epoch = cluster.submit(registration())
    assert cluster.heartbeat(1).is_fenced is False
    assert cluster.submit(registration(rack="r2")) == epoch
    broker = cluster.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack) == (epoch, False, "r2")


def test_two_processes_with_one_id_and_the_first_one_stays() -> None:
    cluster = three_brokers()
    second = registration(port=1, log_dirs=[UUID(int=4000)])
    assert refusal(cluster, second) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.fence(1)
    assert cluster.submit(second) == cluster.image.brokers[1].epoch


@pytest.mark.parametrize("proof", [{"port": 1}, {"log_dirs": [UUID(int=4000)]}])
def test_a_quick_restart_need_not_wait_for_the_end_of_the_session(proof: dict[str, Any]) -> None:
    cluster = three_brokers()
    epoch = cluster.image.brokers[1].epoch
    assert cluster.submit(registration(**proof)) > epoch


def test_directories_belong_to_one_broker() -> None:
    cluster = three_brokers()
    twice = [UUID(int=1001), UUID(int=1001)]
    assert refusal(cluster, registration(log_dirs=twice)) is ErrorCode.INVALID_REGISTRATION
    assert refusal(cluster, registration(log_dirs=[UUID(int=1)])) is ErrorCode.INVALID_REGISTRATION
    copied = registration(broker_id=4, log_dirs=[UUID(int=1001)])
    assert refusal(cluster, copied) is ErrorCode.INVALID_REGISTRATION


def test_a_broker_that_is_too_old_for_the_cluster_is_turned_away() -> None:
    cluster = three_brokers()
    level = FeatureLevelRecord(name="metadata.version", feature_level=30)
    cluster.controller.image, _ = apply(cluster.image, [level], offset=cluster.image.offset + 1, epoch=0)
    too_old = registration(features=[SupportedFeature("metadata.version", 7, 29)])
    assert refusal(cluster, too_old) is ErrorCode.UNSUPPORTED_VERSION
    cluster.submit(registration(features=[SupportedFeature("metadata.version", 7, 31)]))


def test_after_a_clean_stop_a_broker_stays_eligible() -> None:
    cluster = three_brokers()
    cluster.fence(2)
    cluster.fence(3)
    assert (cluster.partition().isr, cluster.partition().elr) == ((1,), (3,))
    epoch = cluster.image.brokers[3].epoch
    cluster.submit(registration(3, clean_start=True, previous_broker_epoch=epoch))
    assert cluster.partition().elr == (3,)


@pytest.mark.parametrize("others", [{"clean_start": False}, {"clean_start": True, "previous_broker_epoch": 0}])
def test_after_a_crash_it_is_not(others: dict[str, Any]) -> None:
    cluster = three_brokers()
    cluster.fence(2)
    cluster.fence(3)
    cluster.submit(registration(3, **others))
    assert (cluster.partition().isr, cluster.partition().elr) == ((1,), ())


def test_a_leader_that_crashed_leads_no_more_although_it_is_back_at_once() -> None:
    cluster = three_brokers()
    cluster.submit(registration(1, clean_start=False))
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    cluster.heartbeat(1)
    assert cluster.partition().isr == (2, 3)


def test_who_was_alone_in_sync_leads_again_after_a_crash_in_a_new_epoch() -> None:
    cluster = three_brokers(min_insync=1)
    cluster.fence(2)
    cluster.fence(3)
    before = cluster.partition()
    assert before.isr == (1,)
    cluster.submit(registration(1, clean_start=False))
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (1,), (1,))
    cluster.heartbeat(2)
    assert cluster.partition().leader == -1
    cluster.heartbeat(1)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    assert cluster.partition().leader_epoch > before.leader_epoch


def test_who_was_alone_in_sync_and_lost_its_disk_does_not_lead() -> None:
    cluster = three_brokers(min_insync=1)
    cluster.fence(2)
    cluster.fence(3)
    cluster.submit(registration(1, clean_start=False, log_dirs=[UUID(int=4000)]))
    cluster.heartbeat(1)
    cluster.heartbeat(2)
    assert (cluster.partition().leader, cluster.partition().elr) == (-1, (1,))
    cluster.submit(registration(1, incarnation=501, clean_start=False))
    cluster.heartbeat(1)
    assert cluster.partition().leader == 1


def test_nor_where_its_directory_was_never_said() -> None:
    cluster = Cluster(brokers=2)
    both = [UUID(int=4000), UUID(int=4001)]
    cluster.submit(registration(1, log_dirs=both))
    cluster.heartbeat(1)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2])]))
    cluster.fence(2)
    cluster.submit(registration(1, incarnation=501, clean_start=False, log_dirs=[UUID(int=4002), UUID(int=4003)]))
    cluster.heartbeat(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (), ())


def test_a_sole_node_registers_unfenced_in_one_step_and_leads_on() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t", num_partitions=2))
    written = len(cluster.log)
    cluster.register(1)
    assert len(cluster.log) == written + 1
    cluster.register(1, clean_start=False)
    assert [partition.leader_epoch for partition in cluster.image.topics["t"].partitions] == [1, 1]
    assert cluster.partition().isr == (1,)
