"""DescribeQuorum 0-2: the voters of the metadata log and how far each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.runtime.quorum import QuorumReplica as Replica

DIRECTORIES_SINCE = 2


def handle(ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[_describe(ctx, topic.topic_name, item.partition_index) for item in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=_nodes(ctx) if ctx.api_version >= DIRECTORIES_SINCE else [],
    )


def failed(_request: DescribeQuorumRequest, code: ErrorCode, message: str, version: int) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=code, error_message=message if version >= DIRECTORIES_SINCE else None, topics=[]
    )


def _describe(ctx: RequestContext, topic: str, partition: int) -> PartitionData:
    if (topic, partition) != (METADATA_TOPIC, 0):
        return PartitionData(
            partition_index=partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"the only quorum is that of {METADATA_TOPIC}-0",
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
            current_voters=[],
            observers=[],
        )
    quorum = ctx.services.quorum.describe()
    with_directory = ctx.api_version >= DIRECTORIES_SINCE
    return PartitionData(
        partition_index=partition,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(replica, with_directory=with_directory) for replica in quorum.voters],
        observers=[_replica(replica, with_directory=with_directory) for replica in quorum.observers],
    )


def _replica(replica: Replica, *, with_directory: bool) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.replica_id,
        replica_directory_id=replica.directory_id if with_directory else ZERO_UUID,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_timestamp_ms,
        last_caught_up_timestamp=replica.last_caught_up_timestamp_ms,
    )


def _nodes(ctx: RequestContext) -> list[Node]:
    """Where the voters listen; a sole voter whose port was chosen late is known as a broker."""
    brokers = ctx.services.image.brokers
    nodes = []
    for voter_id, endpoints in ctx.services.quorum.describe().endpoints:
        found = endpoints or (brokers[voter_id].endpoints if voter_id in brokers else ())
        listeners = [Listener(name=item.name, host=item.host, port=item.port) for item in found]
        nodes.append(Node(node_id=voter_id, listeners=listeners))
    return nodes
