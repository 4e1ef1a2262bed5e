"""AddRaftVoter 0-1: a node that follows the metadata log becomes a voter. It must have caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    await ctx.services.quorum.add_voter(request)
    return AddRaftVoterResponse()


def failed(_request: AddRaftVoterRequest, code: ErrorCode, message: str, _version: int) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=code, error_message=message)
