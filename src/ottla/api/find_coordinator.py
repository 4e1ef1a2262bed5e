"""FindCoordinator 0-6: the broker that leads the partition which a group or a transactional id belongs to.

The internal topic is created when it is asked for first, and the answer waits for it, where Kafka answers
COORDINATOR_NOT_AVAILABLE and lets the client ask again. Share groups (type 2) get INVALID_REQUEST, as from a Kafka
without a share coordinator. The error code stands for each key; versions 0 to 3 ask for one key.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.api.cluster_view import broker_addresses
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.core.groups.records import GroupRecord
    from ottla.core.transactions.records import TransactionRecord
    from ottla.runtime.coordinators import Coordinators

    AnyCoordinators = Coordinators[GroupRecord] | Coordinators[TransactionRecord]

GROUP, TRANSACTION = 0, 1
BATCHED_SINCE = 4


def handle(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    coordinators = _coordinators(ctx, request.key_type)
    if coordinators is None:
        message = f"there are no coordinators of type {request.key_type} here"
        return failed(request, ErrorCode.INVALID_REQUEST, message, ctx.api_version)
    if coordinators.topic in ctx.services.image.topics and ctx.services.absences is None:
        return _found(ctx, request, coordinators)
    return _found_later(ctx, request, coordinators)


async def _found_later(
    ctx: RequestContext, request: FindCoordinatorRequest, coordinators: AnyCoordinators
) -> FindCoordinatorResponse:
    if coordinators.topic not in ctx.services.image.topics:
        await ctx.services.internal_topics.ensure(coordinators.topic)
    if ctx.services.absences is not None:
        await ctx.services.absences.settled()
    return _found(ctx, request, coordinators)


def failed(request: FindCoordinatorRequest, code: ErrorCode, message: str, version: int) -> FindCoordinatorResponse:
    if version < BATCHED_SINCE:
        return FindCoordinatorResponse(error_code=code, error_message=message)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, error_code=code, error_message=message) for key in request.coordinator_keys]
    )


def _coordinators(ctx: RequestContext, key_type: int) -> AnyCoordinators | None:
    if key_type == GROUP:
        return ctx.services.groups
    if key_type == TRANSACTION:
        return ctx.services.transactions.coordinators
    return None


def _found(
    ctx: RequestContext, request: FindCoordinatorRequest, coordinators: AnyCoordinators
) -> FindCoordinatorResponse:
    if ctx.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[_coordinator(ctx, coordinators, key) for key in request.coordinator_keys]
        )
    found = _coordinator(ctx, coordinators, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(ctx: RequestContext, coordinators: AnyCoordinators, key: str) -> Coordinator:
    image = ctx.services.image
    topic = image.topics.get(coordinators.topic)
    leader = -1 if topic is None else topic.partitions[coordinators.partition_for(key)].leader
    for broker in broker_addresses(image, ctx.listener):
        if broker.node_id == leader:
            return Coordinator(key=key, node_id=leader, host=broker.host, port=broker.port)
    error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's partition has no leader; try again")
    return Coordinator(key=key, error_code=error.code, error_message=error.message)
