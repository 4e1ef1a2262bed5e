"""BeginQuorumEpoch 0-1: a new leader of the metadata log tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    return await ctx.services.quorum.begin_quorum_epoch(request)


def failed(
    _request: BeginQuorumEpochRequest, code: ErrorCode, _message: str, _version: int
) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(error_code=code)
