"""JoinGroup 0-9: a member comes into the next generation of a classic group.

The answer waits for the other members. Version 0 has one timeout for everything; from version 4 on a new member is
given an id first and joins with it; from 9 on a leader may be told that there is nothing to assign.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.core.groups.classic_commands import JoinedGroup, JoinGroup
from ottla.core.groups.records import ClassicProtocol
from ottla.model.errors import ErrorCode
from ottla.runtime.coordinators import then
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

REBALANCE_TIMEOUT_SINCE: Final = 1
MEMBER_ID_REQUIRED_SINCE: Final = 4
PROTOCOL_NAME_NULLABLE_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9


def handle(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    version = ctx.api_version
    command = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_SINCE else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=_each_once(request.protocols),
        member_id_required=version >= MEMBER_ID_REQUIRED_SINCE,
        skip_assignment_supported=version >= SKIP_ASSIGNMENT_SINCE,
        reason=request.reason,
    )

    def response(joined: JoinedGroup) -> JoinGroupResponse:
        return _response(joined, version)

    return then(ctx.services.groups.submit(request.group_id, command), response)


def _each_once(protocols: Sequence[JoinGroupRequestProtocol]) -> tuple[ClassicProtocol, ...]:
    """A name that is offered twice counts where it is first."""
    offered: dict[str, bytes] = {}
    for protocol in protocols:
        offered.setdefault(protocol.name, protocol.metadata)
    return tuple(ClassicProtocol(name, metadata) for name, metadata in offered.items())


def _response(joined: JoinedGroup, version: int) -> JoinGroupResponse:
    name = joined.protocol_name
    return JoinGroupResponse(
        error_code=joined.error_code,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name="" if name is None and version < PROTOCOL_NAME_NULLABLE_SINCE else name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment and version >= SKIP_ASSIGNMENT_SINCE,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


def failed(request: JoinGroupRequest, code: ErrorCode, _message: str, version: int) -> JoinGroupResponse:
    return _response(JoinedGroup(code, request.member_id), version)
