"""AlterPartition 2-3: a leader asks for another ISR.

Version 3 names the life of each broker in which the leader has seen it fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.core.controller.cluster_commands import AlterPartitions, InSyncReplica, PartitionToAlter
from ottla.model.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    RequestPartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

EPOCHS_SINCE = 3


async def handle(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    partitions = [
        PartitionToAlter(
            topic.topic_id,
            item.partition_index,
            item.leader_epoch,
            _new_isr(item, ctx.api_version),
            item.partition_epoch,
            item.leader_recovery_state,
        )
        for topic in request.topics
        for item in topic.partitions
    ]
    answers = await ctx.services.controller.submit(AlterPartitions(request.broker_id, request.broker_epoch, partitions))
    topics: dict[UUID, list[PartitionData]] = {topic.topic_id: [] for topic in request.topics}
    for answer in answers:
        topics[answer.topic_id].append(
            PartitionData(
                partition_index=answer.index,
                error_code=answer.outcome.code,
                leader_id=answer.leader_id,
                leader_epoch=answer.leader_epoch,
                isr=answer.isr,
                leader_recovery_state=answer.leader_recovery_state,
                partition_epoch=answer.partition_epoch,
            )
        )
    return AlterPartitionResponse(
        topics=[TopicData(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
    )


def _new_isr(item: RequestPartitionData, version: int) -> list[InSyncReplica]:
    if version >= EPOCHS_SINCE:
        return [InSyncReplica(state.broker_id, state.broker_epoch) for state in item.new_isr_with_epochs]
    return [InSyncReplica(broker_id) for broker_id in item.new_isr]


def failed(_request: AlterPartitionRequest, code: ErrorCode, _message: str, _version: int) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=code)
