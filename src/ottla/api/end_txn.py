"""EndTxn 0-5: commits or aborts a transaction.

From version 5 on (KIP-890) the answer carries the producer id and epoch for the next transaction, and repeating a
request is safe. Older clients keep their epoch. Fenced producers hear PRODUCER_FENCED from version 2 on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.api.producer_fencing import fencing_code
from ottla.core.transactions.commands import EndTxn, TransactionEnded
from ottla.core.transactions.transaction import EPOCH_PER_TRANSACTION, is_exhausted
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_ID
from ottla.runtime.coordinators import then
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

FENCED_SINCE = 2
NEXT_EPOCH_SINCE = 5


def handle(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty.")
    transaction_version = EPOCH_PER_TRANSACTION if ctx.api_version >= NEXT_EPOCH_SINCE else 0

    def command(spare_producer_id: int) -> EndTxn:
        return EndTxn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            transaction_version,
            spare_producer_id,
        )

    transactions = ctx.services.transactions
    if transaction_version and is_exhausted(request.producer_epoch):
        return then(transactions.submit_with_spare(request.transactional_id, command), _response)
    return then(transactions.submit(request.transactional_id, command(NO_PRODUCER_ID)), _response)


def _response(ended: TransactionEnded) -> EndTxnResponse:
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)


def failed(_request: EndTxnRequest, code: ErrorCode, _message: str, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=fencing_code(code, version, since=FENCED_SINCE))
