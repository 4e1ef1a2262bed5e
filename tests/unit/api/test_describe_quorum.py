"""DescribeQuorum: voters and observers, in the shape of each version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from uuid import UUID

from ottla.api import describe_quorum
from ottla.api.context import RequestContext
from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.core.quorum.voters import VoterEndpoint
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID
from ottla.runtime.quorum import QuorumDescription, QuorumReplica
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)

QUORUM = QuorumDescription(
    leader_id=1,
    leader_epoch=5,
    high_watermark=9,
    voters=(QuorumReplica(1, UUID(int=1), 10, 100, 100), QuorumReplica(2, UUID(int=2), 8, 90, 80)),
    observers=(QuorumReplica(4, UUID(int=4), 9, 95, 95),),
    endpoints=((1, ()), (2, (VoterEndpoint("PLAINTEXT", "h2", 9092),))),
)
LATE = BrokerImage(id=1, epoch=0, incarnation_id=UUID(int=1), endpoints=(BrokerEndpoint("PLAINTEXT", "h1", 4711, 0),))


def ask(version: int, topic: str = METADATA_TOPIC, index: int = 0) -> DescribeQuorumResponse:
    services = SimpleNamespace(image=MetadataImage(brokers={1: LATE}), quorum=SimpleNamespace(describe=lambda: QUORUM))
    ctx = cast(RequestContext, SimpleNamespace(services=services, api_version=version))
    partition = RequestPartitionData(partition_index=index)
    request = DescribeQuorumRequest(topics=[RequestTopicData(topic_name=topic, partitions=[partition])])
    return describe_quorum.handle(ctx, request)


def test_replicas_have_directories_and_addresses_since_version_2() -> None:
    found = ask(2)
    [partition] = found.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 5, 9)
    assert [(item.replica_id, item.replica_directory_id) for item in partition.current_voters] == [
        (1, UUID(int=1)),
        (2, UUID(int=2)),
    ]
    assert [item.log_end_offset for item in partition.observers] == [9]
    ports = {node.node_id: [item.port for item in node.listeners] for node in found.nodes}
    assert ports == {1: [4711], 2: [9092]}, "a voter without an address on record is found as a broker"
    older = ask(1)
    assert not older.nodes
    assert {item.replica_directory_id for item in older.topics[0].partitions[0].current_voters} == {ZERO_UUID}


def test_there_is_only_one_quorum() -> None:
    for found in (ask(2, "orders"), ask(2, index=1)):
        assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_is_told_with_its_message_where_there_is_room() -> None:
    request = DescribeQuorumRequest(topics=[])
    assert describe_quorum.failed(request, ErrorCode.NOT_CONTROLLER, "why", 2).error_message == "why"
    assert describe_quorum.failed(request, ErrorCode.NOT_CONTROLLER, "why", 1).error_message is None
