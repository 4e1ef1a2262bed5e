"""DescribeCluster 0-2: the cluster id, the controller and the brokers; or, for endpoint type 2, the controllers.

Every listener of Ottla serves every API, so that an address of a broker works as `--bootstrap-controller` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorized_operations import cluster_operations
from ottla.api.cluster_view import broker_addresses
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


def handle(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    image = ctx.services.image
    if request.endpoint_type == ENDPOINT_CONTROLLERS:
        return _controllers(ctx, request)
    if request.endpoint_type != ENDPOINT_BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is unknown",
            endpoint_type=request.endpoint_type,
            cluster_id=image.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=ctx.services.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker in broker_addresses(image, ctx.listener, with_fenced=request.include_fenced_brokers)
        ],
        cluster_authorized_operations=cluster_operations(asked=request.include_cluster_authorized_operations),
    )


def _controllers(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The voters, and which of them leads."""
    image, quorum = ctx.services.image, ctx.services.quorum.describe()
    return DescribeClusterResponse(
        endpoint_type=ENDPOINT_CONTROLLERS,
        cluster_id=image.cluster_id,
        controller_id=quorum.leader_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=voter_id,
                host=endpoints[0].host,
                port=endpoints[0].port,
                rack=image.brokers[voter_id].rack if voter_id in image.brokers else None,
            )
            for voter_id, endpoints in quorum.endpoints
            if endpoints
        ],
        cluster_authorized_operations=cluster_operations(asked=request.include_cluster_authorized_operations),
    )
