"""ConsumerGroupHeartbeat 0-1: a member of a consumer group joins, says that it is alive and what changed, or leaves.

With group.version 0, or without `consumer` in group.coordinator.rebalance.protocols, it is UNSUPPORTED_VERSION. The
answer names the time of the next heartbeat; it is short while the group moves (`core/groups/group_settings.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.api.consumer_groups import check_offered
from ottla.core.groups.consumer_commands import ConsumerGroupHeartbeat, MemberHeard
from ottla.model.errors import ErrorCode
from ottla.runtime.coordinators import then
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    services = ctx.services
    check_offered(services)
    names, owned = request.subscribed_topic_names, request.topic_partitions
    command = ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        topic_partitions=None if owned is None else tuple((t.topic_id, tuple(t.partitions)) for t in owned),
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer_host}",
        version=ctx.api_version,
    )
    return then(services.groups.submit(request.group_id, command), _response)


def _response(heard: MemberHeard) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if heard.assignment is not None:
        topics = [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in heard.assignment]
        assignment = Assignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        member_id=heard.member_id,
        member_epoch=heard.member_epoch,
        heartbeat_interval_ms=heard.heartbeat_interval_ms,
        assignment=assignment,
    )


def failed(
    _request: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str, _version: int
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
