"""Vote 0-2: another replica of the metadata log wants to lead. Version 2 has pre-votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.vote import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: VoteRequest) -> VoteResponse:
    return await ctx.services.quorum.vote(request)


def failed(_request: VoteRequest, code: ErrorCode, _message: str, _version: int) -> VoteResponse:
    return VoteResponse(error_code=code, topics=[])
