"""BrokerHeartbeat 0-1: a broker lives, and asks to serve or to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.cluster_commands import BrokerHeartbeat
from ottla.model.errors import ErrorCode
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    answer = await ctx.services.controller.submit(
        BrokerHeartbeat(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            current_metadata_offset=request.current_metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shut_down,
            offline_log_dirs=request.offline_log_dirs,
        )
    )
    return BrokerHeartbeatResponse(
        is_caught_up=answer.is_caught_up, is_fenced=answer.is_fenced, should_shut_down=answer.should_shut_down
    )


def failed(_request: BrokerHeartbeatRequest, code: ErrorCode, _message: str, _version: int) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=code)
