"""EndQuorumEpoch 0-1: the leader of the metadata log lets go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    return await ctx.services.quorum.end_quorum_epoch(request)


def failed(_request: EndQuorumEpochRequest, code: ErrorCode, _message: str, _version: int) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(error_code=code)
