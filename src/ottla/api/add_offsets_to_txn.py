"""AddOffsetsToTxn 0-4: a transaction is about to commit offsets of a group.

What is added is the partition that holds the group's offsets; TxnOffsetCommit to the group's coordinator follows.
Fenced producers hear PRODUCER_FENCED from version 2 on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.api.producer_fencing import fencing_code
from ottla.core.transactions.commands import AddPartitions
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.coordinators import then
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

FENCED_SINCE = 2


def handle(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty.")
    groups = ctx.services.groups
    partition = TopicPartition(groups.topic, groups.partition_for(request.group_id))
    command = AddPartitions(
        request.transactional_id, request.producer_id, request.producer_epoch, frozenset((partition,))
    )
    return then(ctx.services.transactions.submit(request.transactional_id, command), _response)


def _response(_answer: None) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse()


def failed(_request: AddOffsetsToTxnRequest, code: ErrorCode, _message: str, version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=fencing_code(code, version, since=FENCED_SINCE))
