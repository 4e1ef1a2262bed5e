"""DescribeCluster: the brokers, or with another endpoint type the controllers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import AUTHORIZED_OPERATIONS_OMITTED
from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String, since


class DescribeClusterRequest(Message, api_key=60, versions=(0, 2), flexible_since=0):
    """Asks for brokers (endpoint type 1) or controllers (2)."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


class DescribeClusterBroker(Message):
    """One node of the cluster."""

    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = None
    is_fenced: Annotated[Bool, since(2)] = False


class DescribeClusterResponse(Message, api_key=60, versions=(0, 2), flexible_since=0):
    """The cluster as one broker sees it."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = AUTHORIZED_OPERATIONS_OMITTED
