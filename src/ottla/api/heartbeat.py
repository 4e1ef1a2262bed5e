"""Heartbeat 0-4: a member of a classic group is alive.

While its coordinator is being loaded a member is told that all is well: it has nothing better to do than to go on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.core.groups.classic_commands import Heartbeat
from ottla.model.errors import ErrorCode
from ottla.runtime.coordinators import then
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    command = Heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    return then(ctx.services.groups.submit(request.group_id, command), _response)


def _response(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def failed(_request: HeartbeatRequest, code: ErrorCode, _message: str, _version: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)
