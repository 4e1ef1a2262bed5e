"""DescribeCluster tells brokers, or, when asked for them, the controllers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.api import describe_cluster
from ottla.api.context import RequestContext
from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.core.quorum.voters import VoterEndpoint
from ottla.model.errors import ErrorCode
from ottla.runtime.quorum import QuorumDescription
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

QUORUM = QuorumDescription(
    leader_id=2,
    leader_epoch=5,
    high_watermark=9,
    voters=(),
    observers=(),
    endpoints=(
        (1, (VoterEndpoint("CONTROLLER", "c1", 9093),)),
        (2, (VoterEndpoint("CONTROLLER", "c2", 9093),)),
        (3, ()),
    ),
)


def broker(node_id: int, *, fenced: bool = False) -> BrokerImage:
    endpoint = BrokerEndpoint("PLAINTEXT", f"b{node_id}", 9092, 0)
    return BrokerImage(
        id=node_id, epoch=0, incarnation_id=UUID(int=node_id), endpoints=(endpoint,), rack="r", fenced=fenced
    )


def ask(**fields: Any) -> DescribeClusterResponse:
    image = MetadataImage(cluster_id="cluster", brokers={1: broker(1), 2: broker(2, fenced=True)})
    services = SimpleNamespace(image=image, node_id=1, quorum=SimpleNamespace(describe=lambda: QUORUM))
    ctx = cast(RequestContext, SimpleNamespace(services=services, listener="PLAINTEXT", api_version=2))
    return describe_cluster.handle(ctx, DescribeClusterRequest(include_cluster_authorized_operations=False, **fields))


def test_brokers_are_described_and_fenced_ones_only_when_asked_for() -> None:
    assert [(item.broker_id, item.host) for item in ask().brokers] == [(1, "b1")]
    found = ask(include_fenced_brokers=True)
    assert [(item.broker_id, item.is_fenced) for item in found.brokers] == [(1, False), (2, True)]


def test_controllers_are_those_who_vote() -> None:
    found = ask(endpoint_type=2)
    assert (found.error_code, found.endpoint_type, found.controller_id, found.cluster_id) == (0, 2, 2, "cluster")
    assert [(item.broker_id, item.host, item.port) for item in found.brokers] == [(1, "c1", 9093), (2, "c2", 9093)]


def test_another_type_is_unknown() -> None:
    assert ask(endpoint_type=3).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
