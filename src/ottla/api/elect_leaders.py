"""ElectLeaders 0-2: makes the preferred replica the leader, or any that lives.

Version 0 knows the preferred one only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import ElectLeaders
from ottla.model.errors import ErrorCode
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

OVERALL_ERROR_SINCE = 1


async def handle(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    asked = request.topic_partitions
    partitions = None if asked is None else [(item.topic, index) for item in asked for index in item.partitions]
    election = await ctx.services.controller.submit(ElectLeaders(request.election_type, partitions))
    results: dict[str, list[PartitionResult]] = {}
    for topic, partition, (code, message) in election.partitions:
        results.setdefault(topic, []).append(
            PartitionResult(partition_id=partition, error_code=code, error_message=message)
        )
    return ElectLeadersResponse(
        error_code=election.outcome.code if ctx.api_version >= OVERALL_ERROR_SINCE else 0,
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=outcomes) for topic, outcomes in results.items()
        ],
    )


def failed(_request: ElectLeadersRequest, code: ErrorCode, _message: str, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=code if version >= OVERALL_ERROR_SINCE else 0, replica_election_results=[])
