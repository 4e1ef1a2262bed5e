"""ListGroups 0-5: the groups that this broker coordinates, by state (from version 4 on) and type (from 5 on).

Names of states and types are taken in any case; one that there is not matches no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.groups import listing
from ottla.model.errors import ErrorCode
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    command = listing.ListGroups(
        states=frozenset(state.lower().strip() for state in request.states_filter),
        kinds=frozenset(kind.lower() for kind in request.types_filter),
    )
    shards = await ctx.services.groups.broadcast(lambda: command)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for shard in shards
            for group in shard
        ]
    )


def failed(_request: ListGroupsRequest, code: ErrorCode, _message: str, _version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)
