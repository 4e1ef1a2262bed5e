"""DescribeTransactions 0: where transactional ids stand, each id with a code of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.core.transactions.commands import DescribeTransaction
from ottla.core.transactions.records import TransactionRecord
from ottla.core.transactions.transaction import STATE_NAMES
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

IDS_PER_TURN_MAX = 500


async def handle(ctx: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    states = []
    for count, transactional_id in enumerate(request.transactional_ids, 1):
        states.append(await _describe(ctx, transactional_id))
        if count % IDS_PER_TURN_MAX == 0:
            await asyncio.sleep(0)
    return DescribeTransactionsResponse(transaction_states=states)


def failed(
    request: DescribeTransactionsRequest, code: ErrorCode, _message: str, _version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=code, transactional_id=transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


async def _describe(ctx: RequestContext, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST, transactional_id=transactional_id)
    try:
        answer = ctx.services.transactions.submit(transactional_id, DescribeTransaction(transactional_id))
        record = await answer if isinstance(answer, Awaitable) else answer
    except ApiError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    return _state(record)


def _state(record: TransactionRecord) -> TransactionState:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(record.partitions):
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=record.transactional_id,
        transaction_state=STATE_NAMES[record.state],
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_timestamp,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
