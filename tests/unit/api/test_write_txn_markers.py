"""A coordinator gets a result for each marker and partition, in the order in which it asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import cast

from ottla.api import write_txn_markers
from ottla.api.context import RequestContext, Services
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.runtime.marker_writing import MarkerWriter
from ottla.wire.headers import encode_response
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.runtime.hosted import TOPIC, Hosted


def marker(producer_id: int, *indexes: int, epoch: int = 0, topic: str = TOPIC, version: int = 0) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)],
        coordinator_epoch=0,
        transaction_version=version,
    )


def answer(hosted: Hosted, *markers: WritableTxnMarker, version: int = 2) -> WriteTxnMarkersResponse:
    async def scenario() -> WriteTxnMarkersResponse:
        writer = MarkerWriter(hosted.table, hosted.clock, hosted.flushes, lambda: SimpleNamespace())
        services = cast(Services, SimpleNamespace(markers=writer))
        ctx = RequestContext(services, 27, version, 1, "c", "10.0.0.1", "PLAINTEXT")
        answered = write_txn_markers.handle(ctx, WriteTxnMarkersRequest(markers=list(markers)))
        return await answered if isinstance(answered, Awaitable) else answered

    response = asyncio.run(scenario())
    assert encode_response(response, version, 1)
    return response


def codes(response: WriteTxnMarkersResponse) -> list[tuple[int, list[int]]]:
    return [
        (result.producer_id, [row.error_code for topic in result.topics for row in topic.partitions])
        for result in response.markers
    ]


def test_markers_are_written_and_answered_one_by_one() -> None:
    hosted = Hosted()
    hosted.write(7, 0)
    hosted.write(8, 0, index=1)
    response = answer(hosted, marker(7, 0, 9), marker(8, 1, 0))
    assert codes(response) == [(7, [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]), (8, [0, 0])]
    assert hosted.partition().log.aborted_transactions(0, 9)[0].producer_id == 7
    assert hosted.partition(1).last_stable_offset == 2


def test_one_marker_for_unknown_topics() -> None:
    assert codes(answer(Hosted(), marker(7, 0, topic="nowhere"))) == [(7, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])]


def test_no_markers_no_results() -> None:
    assert codes(answer(Hosted())) == []


def test_a_partition_that_is_named_twice_gets_one_marker() -> None:
    hosted = Hosted()
    assert codes(answer(hosted, marker(7, 0, 0))) == [(7, [0, 0])]
    assert hosted.partition().log.log_end_offset == 1


def test_the_answer_waits_for_the_sync() -> None:
    hosted = Hosted({TOPIC: TopicConfig(flush_messages=1)})
    assert codes(answer(hosted, marker(7, 0))) == [(7, [0])]
    assert hosted.partition().high_watermark == 1


def test_the_transaction_version_decides_which_epochs_are_taken() -> None:
    hosted = Hosted()
    hosted.write(7, 0)
    assert codes(answer(hosted, marker(7, 0, version=2))) == [(7, [ErrorCode.INVALID_PRODUCER_EPOCH])]
    assert codes(answer(hosted, marker(7, 0, epoch=1, version=2))) == [(7, [0])]


def test_a_request_that_fails_as_a_whole_names_every_partition() -> None:
    request = WriteTxnMarkersRequest(markers=[marker(7, 0, 1)])
    failed = write_txn_markers.failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "", 1)
    assert codes(failed) == [(7, [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2)]


def test_a_marker_of_nobody_is_not_written() -> None:
    hosted = Hosted()
    refused = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes(answer(hosted, marker(-1, 0, 9), marker(7, 0, epoch=-1))) == [(-1, [refused] * 2), (7, [refused])]
    assert hosted.partition().log.log_end_offset == 0
