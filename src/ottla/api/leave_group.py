"""LeaveGroup 0-5: members leave a group, or an administrator removes them.

Until version 2 it is one member, and what became of it is the answer; from 3 on there may be several, each with an
answer of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.core.groups.classic_commands import LeaveGroup, LeavingMember, LeftMember
from ottla.model.errors import ErrorCode
from ottla.runtime.coordinators import then
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

MEMBERS_SINCE: Final = 3


def handle(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    several = ctx.api_version >= MEMBERS_SINCE
    members = (
        tuple(LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members)
        if several
        else (LeavingMember(request.member_id),)
    )
    command = LeaveGroup(group_id=request.group_id, members=members)
    answered = ctx.services.groups.submit(request.group_id, command)
    return then(answered, _of_several if several else _of_one)


def _of_several(left: tuple[LeftMember, ...]) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error_code,
            )
            for member in left
        ]
    )


def _of_one(left: tuple[LeftMember, ...]) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=left[0].error_code)


def failed(_request: LeaveGroupRequest, code: ErrorCode, _message: str, _version: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
