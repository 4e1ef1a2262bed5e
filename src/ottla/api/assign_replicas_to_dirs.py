"""AssignReplicasToDirs 0: a broker tells which of its directories its replicas are in."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.core.controller.cluster_commands import AssignReplicasToDirectories, ReplicaDirectory
from ottla.model.errors import ErrorCode
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    replicas = [
        ReplicaDirectory(topic.topic_id, item.partition_index, directory.id)
        for directory in request.directories
        for topic in directory.topics
        for item in topic.partitions
    ]
    command = AssignReplicasToDirectories(request.broker_id, request.broker_epoch, replicas)
    found: dict[UUID, dict[UUID, list[PartitionData]]] = {}
    for (topic_id, index, directory_id), outcome in await ctx.services.controller.submit(command):
        partitions = found.setdefault(directory_id, {}).setdefault(topic_id, [])
        partitions.append(PartitionData(partition_index=index, error_code=outcome.code))
    return AssignReplicasToDirsResponse(
        directories=[
            DirectoryData(
                id=directory_id,
                topics=[TopicData(topic_id=topic_id, partitions=items) for topic_id, items in topics.items()],
            )
            for directory_id, topics in found.items()
        ]
    )


def failed(
    _request: AssignReplicasToDirsRequest, code: ErrorCode, _message: str, _version: int
) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(error_code=code)
