"""RemoveRaftVoter 0: a voter of the metadata log does not vote any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    await ctx.services.quorum.remove_voter(request)
    return RemoveRaftVoterResponse()


def failed(_request: RemoveRaftVoterRequest, code: ErrorCode, message: str, _version: int) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=code, error_message=message)
