"""InitProducerId 0-5: an id for an idempotent producer.

Transactional producers are refused with COORDINATOR_NOT_AVAILABLE: there is no transaction coordinator yet, and
clients do not get this far, since FindCoordinator is not offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code)
    producer_id = await ctx.services.producer_ids.next()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def failed(_request: InitProducerIdRequest, code: ErrorCode, _message: str, _version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code)
