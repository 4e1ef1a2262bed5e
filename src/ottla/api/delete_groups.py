"""DeleteGroups 0-2: groups without members go, and their offsets with them.

A group with very many offsets is deleted in several steps. Whoever joins in between keeps it, without the offsets that
are gone by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.core.groups import listing
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        code = await _delete(ctx, group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)


async def _delete(ctx: RequestContext, group_id: str) -> ErrorCode:
    done = False
    try:
        while not done:
            await asyncio.sleep(0)
            answer = ctx.services.groups.submit(group_id, listing.DeleteGroup(group_id))
            done = await answer if isinstance(answer, Awaitable) else answer
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def failed(request: DeleteGroupsRequest, code: ErrorCode, _message: str, _version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )
