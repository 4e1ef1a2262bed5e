"""WriteTxnMarkers 1-2: a transaction coordinator, or an operator, ends transactions in the partitions led here.

Answered when every marker is below the high watermark. A marker that ends nothing is written all the same. Version 2
says by which rules the transaction was made: from transaction version 2 on the marker's epoch must be higher than that
of the records that it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.coordinators import then
from ottla.runtime.marker_writing import Marker, Results
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(
    ctx: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    markers = request.markers
    if len(markers) > 1:
        return _write_in_turns(ctx, markers)
    return then(_write(ctx, markers[0]), lambda results: _answer(markers, [results])) if markers else _answer((), ())


def failed(
    request: WriteTxnMarkersRequest, error_code: ErrorCode, _message: str, _version: int
) -> WriteTxnMarkersResponse:
    """The same error for every partition."""
    return _answer(request.markers, [dict.fromkeys(_partitions(asked), error_code) for asked in request.markers])


def _write(ctx: RequestContext, asked: WritableTxnMarker) -> Results | Awaitable[Results]:
    if asked.producer_id < 0 or asked.producer_epoch < 0:
        # In Kafka's code for it. A marker of nobody would be a batch that no reader can place.
        return dict.fromkeys(_partitions(asked), ErrorCode.UNKNOWN_SERVER_ERROR)
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
    )
    return ctx.services.markers.write(marker, _partitions(asked))


def _partitions(asked: WritableTxnMarker) -> list[TopicPartition]:
    named = (TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes)
    return list(dict.fromkeys(named))


async def _write_in_turns(ctx: RequestContext, markers: Sequence[WritableTxnMarker]) -> WriteTxnMarkersResponse:
    """Append one after the other, so that thousands of them do not hold up the loop; then wait for all of them."""
    writing: list[Results | asyncio.Future[Results]] = []
    for asked in markers:
        written = _write(ctx, asked)
        writing.append(asyncio.ensure_future(written) if isinstance(written, Awaitable) else written)
        await asyncio.sleep(0)
    return _answer(markers, [await item if isinstance(item, asyncio.Future) else item for item in writing])


def _answer(markers: Sequence[WritableTxnMarker], results: Sequence[Results]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[_result(asked, codes) for asked, codes in zip(markers, results, strict=True)]
    )


def _result(asked: WritableTxnMarker, codes: Results) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )
