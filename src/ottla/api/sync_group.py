"""SyncGroup 0-5: the leader of a classic group brings the assignments, and every member gets its own.

The answer waits for the leader. From version 5 on a member says which protocol it believes to be in.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.core.groups.classic_commands import SyncedGroup, SyncGroup
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.coordinators import then
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

PROTOCOL_SINCE: Final = 5


def handle(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if ctx.api_version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "name the protocol and its type")
    command = SyncGroup(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((assigned.member_id, assigned.assignment) for assigned in request.assignments),
    )
    return then(ctx.services.groups.submit(request.group_id, command), _response)


def _response(synced: SyncedGroup) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def failed(_request: SyncGroupRequest, code: ErrorCode, _message: str, _version: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
