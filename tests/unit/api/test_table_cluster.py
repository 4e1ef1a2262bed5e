"""What brokers ask of the active controller, as messages."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.api import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
)
from ottla.api.context import RequestContext
from ottla.api.table import BY_KEY
from ottla.core.controller.commands import NewTopic
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, RequestDirectoryData
from ottla.wire.messages.assign_replicas_to_dirs import RequestPartitionData as AssignedPartition
from ottla.wire.messages.assign_replicas_to_dirs import RequestTopicData as AssignedTopic
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tests.unit.core.controller.cluster import CLUSTER_ID, Cluster


def asked(cluster: Cluster, module: Any, request: Any, version: int = 0) -> Any:
    async def submit(command: Any) -> Any:
        return cluster.submit(command)

    services = SimpleNamespace(controller=SimpleNamespace(submit=submit))
    context = cast(RequestContext, SimpleNamespace(services=services, api_version=version))
    return asyncio.run(module.handle(context, request))


def registration(previous_epoch: int = -1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=2,
        cluster_id=CLUSTER_ID,
        incarnation_id=UUID(int=500),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9002, security_protocol=0)],
        features=[Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack="a",
        log_dirs=[UUID(int=1002)],
        previous_broker_epoch=previous_epoch,
    )


def two_brokers() -> Cluster:
    cluster = Cluster(brokers=2, config={"min.insync.replicas": "2"})
    cluster.create(NewTopic("t", assignments=[(0, [1, 2])]))
    return cluster


def test_a_broker_registers_and_lives() -> None:
    cluster = Cluster()
    epoch = asked(cluster, broker_registration, registration(), 4).broker_epoch
    broker = cluster.image.brokers[2]
    assert (broker.epoch, broker.fenced, broker.rack, broker.log_dirs) == (epoch, True, "a", (UUID(int=1002),))
    request = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=epoch, current_metadata_offset=epoch, want_fence=False, want_shut_down=False
    )
    answer = asked(cluster, broker_heartbeat, request, 1)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)
    assert not cluster.image.brokers[2].fenced


@pytest.mark.parametrize("clean", [True, False])
def test_only_who_names_its_last_life_was_stopped_cleanly(clean: bool) -> None:
    cluster = two_brokers()
    cluster.fence(2)
    assert cluster.partition().elr == (2,)
    asked(cluster, broker_registration, registration(cluster.image.brokers[2].epoch if clean else -1), 4)
    assert cluster.partition().elr == ((2,) if clean else ())


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_changes_the_isr(version: int) -> None:
    cluster = two_brokers()
    topic_id = cluster.image.topics["t"].id
    epoch = cluster.image.brokers[1].epoch
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=epoch,
        topics=[
            RequestTopicData(
                topic_id=topic_id,
                partitions=[
                    RequestPartitionData(
                        partition_index=index,
                        leader_epoch=0,
                        new_isr=[1] if version == 2 else [],
                        new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=epoch)] if version == 3 else [],
                        partition_epoch=0,
                    )
                    for index in (0, 7)
                ],
            )
        ],
    )
    [topic] = asked(cluster, alter_partition, request, version).topics
    done, refused = topic.partitions
    assert (topic.topic_id, done.error_code, done.isr, done.partition_epoch) == (topic_id, 0, (1,), 1)
    assert (refused.partition_index, refused.error_code) == (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_block_of_producer_ids() -> None:
    cluster = two_brokers()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch)
    blocks = [asked(cluster, allocate_producer_ids, request) for _ in range(2)]
    assert [(block.producer_id_start, block.producer_id_len) for block in blocks] == [(0, 1000), (1000, 1000)]


def test_replicas_in_directories() -> None:
    cluster = two_brokers()
    topic_id, directories = cluster.image.topics["t"].id, [UUID(int=4000), UUID(int=1002)]
    cluster.register(2, log_dirs=directories)
    request = AssignReplicasToDirsRequest(
        broker_id=2,
        broker_epoch=cluster.image.brokers[2].epoch,
        directories=[
            RequestDirectoryData(
                id=directories[0],
                topics=[
                    AssignedTopic(
                        topic_id=topic_id, partitions=[AssignedPartition(partition_index=index) for index in (0, 3)]
                    )
                ],
            )
        ],
    )
    [directory] = asked(cluster, assign_replicas_to_dirs, request).directories
    [topic] = directory.topics
    assert (directory.id, topic.topic_id) == (directories[0], topic_id)
    codes = [(item.partition_index, item.error_code) for item in topic.partitions]
    assert codes == [(0, 0), (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert cluster.partition().directories[1] == directories[0]


def test_a_stale_broker_is_refused_as_a_whole() -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=99)
    with pytest.raises(ApiError):
        asked(two_brokers(), allocate_producer_ids, request)


@pytest.mark.parametrize("key", [56, 62, 63, 67, 73])
def test_whoever_is_not_the_controller_says_so(key: int) -> None:
    api = BY_KEY[key]
    assert api.error_response is not None
    answer: Any = api.error_response(cast(Any, None), ErrorCode.NOT_CONTROLLER, "not here", api.max_version)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert not api.forwarded
