"""Fetch of the metadata log, which the quorum answers: a request whose only topic is `__cluster_metadata`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.chunks import Chunks
from ottla.model.errors import ErrorCode
from ottla.wire import fetch as codec
from ottla.wire.fetch_types import FetchRequest

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: FetchRequest) -> Chunks:
    error, partition, endpoints = await ctx.services.quorum.fetch(request)
    topics = [(request.topics[0][0], [partition])] if error is ErrorCode.NONE else []
    return codec.encode_response(ctx.api_version, ctx.correlation_id, error, 0, topics, node_endpoints=endpoints)
