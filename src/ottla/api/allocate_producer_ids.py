"""AllocateProducerIds 0: a block of producer ids for a broker, which nobody else will ever get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import AllocateProducerIds
from ottla.model.errors import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    block = await ctx.services.controller.submit(AllocateProducerIds(request.broker_id, request.broker_epoch))
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)


def failed(
    _request: AllocateProducerIdsRequest, code: ErrorCode, _message: str, _version: int
) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=code)
