"""DescribeCluster 0-2: the cluster id, the controller and the brokers.

Controllers (endpoint type 2) are asked on their own listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    if request.endpoint_type != ENDPOINT_BROKERS:
        known = request.endpoint_type == ENDPOINT_CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this listener serves brokers"
            if known
            else f"endpoint type {request.endpoint_type} is unknown",
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
    )
