"""ListPartitionReassignments 0: the partitions whose replicas move just now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.cluster_commands import ListReassignments
from ottla.model.errors import ErrorCode
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    asked = request.topics
    partitions = (
        None if asked is None else [(topic.name, index) for topic in asked for index in topic.partition_indexes]
    )
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for ongoing in await ctx.services.controller.submit(ListReassignments(partitions)):
        topics.setdefault(ongoing.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=ongoing.index,
                replicas=ongoing.replicas,
                adding_replicas=ongoing.adding,
                removing_replicas=ongoing.removing,
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name=name, partitions=moves) for name, moves in topics.items()]
    )


def failed(
    _request: ListPartitionReassignmentsRequest, code: ErrorCode, message: str, _version: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message or None, topics=[])
