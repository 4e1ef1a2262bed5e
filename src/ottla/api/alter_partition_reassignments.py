"""AlterPartitionReassignments 0-1: moves replicas to other brokers, or stops a move.

The answer says that a move has begun; ListPartitionReassignments says when it is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.cluster_commands import AlterReassignments, ReassignedPartition
from ottla.model.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    moves = [
        ReassignedPartition(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    outcomes = await ctx.services.controller.submit(AlterReassignments(moves, request.allow_replication_factor_change))
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for topic, index, (code, message) in outcomes:
        answer = ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
        topics.setdefault(topic, []).append(answer)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[ReassignableTopicResponse(name=name, partitions=answers) for name, answers in topics.items()],
    )


def failed(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str, _version: int
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message or None,
        responses=[],
    )
