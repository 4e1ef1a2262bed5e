"""DescribeGroups 0-6: classic groups with their members, their metadata and their assignments.

A group that is not there, or is none of the classic protocol, is Dead; from version 6 on that is an error too.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.api.described_groups import describe_all
from ottla.core.groups import listing
from ottla.core.groups.classic_group import ClassicState
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

NOT_FOUND_SINCE: Final = 6


async def handle(ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = await describe_all(
        request.groups, partial(_describe, ctx), with_operations=request.include_authorized_operations
    )
    return DescribeGroupsResponse(groups=groups)


async def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    try:
        answer = ctx.services.groups.submit(group_id, listing.DescribeGroup(group_id))
        group = await answer if isinstance(answer, Awaitable) else answer
    except ApiError as error:
        return _refused(group_id, error.code, error.message, ctx.api_version)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def _refused(group_id: str, code: ErrorCode, message: str, version: int) -> DescribedGroup:
    if code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=code)
    dead = ClassicState.DEAD.value
    if version < NOT_FOUND_SINCE:
        return DescribedGroup(group_id=group_id, group_state=dead)
    return DescribedGroup(group_id=group_id, group_state=dead, error_code=code, error_message=message)


def failed(request: DescribeGroupsRequest, code: ErrorCode, message: str, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(group_id, code, message, version) for group_id in request.groups])
