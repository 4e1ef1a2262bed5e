"""InitProducerId 0-5: an id and an epoch for an idempotent or a transactional producer.

A producer without a transactional id gets a new id each time, whatever it says it had. For the others see
`core/transactions/init_producer.py`. Fenced producers hear PRODUCER_FENCED from version 4 on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.api.producer_fencing import fencing_code
from ottla.core.transactions.commands import InitProducerId, ProducerInitialized
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.runtime.coordinators import then
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

FENCED_SINCE = 4


def handle(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Give a producer id and its epoch, or neither.")
    transactional_id = request.transactional_id
    if transactional_id is None:
        return _idempotent(ctx)
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty.")

    def command(spare_producer_id: int) -> InitProducerId:
        return InitProducerId(
            transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            spare_producer_id,
        )

    return then(ctx.services.transactions.submit_with_spare(transactional_id, command), _response)


async def _idempotent(ctx: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.services.producer_ids.next(), producer_epoch=0)


def _response(producer: ProducerInitialized) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def failed(_request: InitProducerIdRequest, code: ErrorCode, _message: str, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=fencing_code(code, version, since=FENCED_SINCE))
