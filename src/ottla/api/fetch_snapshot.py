"""FetchSnapshot 0-1: a part of a snapshot of the metadata, for a replica that is far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    return await ctx.services.quorum.fetch_snapshot(request)


def failed(_request: FetchSnapshotRequest, code: ErrorCode, _message: str, _version: int) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(error_code=code, topics=[])
