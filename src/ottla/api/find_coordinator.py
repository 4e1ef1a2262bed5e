"""FindCoordinator 0-6: the broker that leads the partition which a group or a transactional id belongs to.

The internal topic is created when it is asked for first, and the answer waits for it, where Kafka answers
COORDINATOR_NOT_AVAILABLE and lets the client ask again. Share groups (type 2) get INVALID_REQUEST, as from a Kafka
without a share coordinator. The error code stands for each key; versions 0 to 3 ask for one key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.api.cluster_view import broker_addresses
from ottla.model.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.core.groups.records import GroupRecord
    from ottla.core.transactions.records import TransactionRecord
    from ottla.runtime.coordinators import Coordinators

    AnyCoordinators = Coordinators[GroupRecord] | Coordinators[TransactionRecord]

GROUP, TRANSACTION = 0, 1
KEYS_PER_TURN: Final = 256
BATCHED_SINCE = 4


def handle(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    coordinators = _coordinators(ctx, request.key_type)
    if coordinators is None:
        message = f"there are no coordinators of type {request.key_type} here"
        return failed(request, ErrorCode.INVALID_REQUEST, message, ctx.api_version)
    is_there = coordinators.topic in ctx.services.image.topics and ctx.services.absences is None
    if is_there and len(request.coordinator_keys) <= KEYS_PER_TURN:
        return _response(ctx, _found(ctx, coordinators, _keys(ctx, request)))
    return _found_later(ctx, request, coordinators)


async def _found_later(
    ctx: RequestContext, request: FindCoordinatorRequest, coordinators: AnyCoordinators
) -> FindCoordinatorResponse:
    if coordinators.topic not in ctx.services.image.topics:
        await ctx.services.internal_topics.ensure(coordinators.topic)
    if ctx.services.absences is not None:
        await ctx.services.absences.settled()
    keys, found = _keys(ctx, request), []
    for first in range(0, len(keys), KEYS_PER_TURN):
        if first:
            await asyncio.sleep(0)
        found += _found(ctx, coordinators, keys[first : first + KEYS_PER_TURN])
    return _response(ctx, found)


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


def _keys(ctx: RequestContext, request: FindCoordinatorRequest) -> Sequence[str]:
    return request.coordinator_keys if ctx.api_version >= BATCHED_SINCE else [request.key]


def _found(ctx: RequestContext, coordinators: AnyCoordinators, keys: Sequence[str]) -> list[Coordinator]:
    image = ctx.services.image
    topic = image.topics.get(coordinators.topic)
    brokers = {broker.node_id: broker for broker in broker_addresses(image, ctx.listener)}
    found = []
    for key in keys:
        leader = -1 if topic is None else topic.partitions[coordinators.partition_for(key)].leader
        broker = brokers.get(leader)
        if broker is not None:
            found.append(Coordinator(key=key, node_id=leader, host=broker.host, port=broker.port))
        else:
            message = "the coordinator's partition has no leader; try again"
            found.append(Coordinator(key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=message))
    return found


def _response(ctx: RequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    if ctx.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )
