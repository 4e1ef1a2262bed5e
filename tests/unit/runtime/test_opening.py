"""A request that is the first to touch very many partitions does not keep everybody else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.api import describe_producers, fetch, list_offsets, offset_for_leader_epoch
from ottla.api.context import RequestContext
from ottla.api.deferred import settled
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import CorruptLogError
from ottla.runtime.opening import LOGS_INLINE_MAX
from ottla.runtime.partition import Partition
from ottla.wire.fetch_client import encode_request, fetch_request, parse_response
from ottla.wire.fetch_types import FetchPartition
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.api.fetch_services import fetch_services, joined
from tests.unit.runtime.hosted import TOPIC, Hosted, run

COUNT = 60
FETCH_VERSION, FETCH_HEADER_BYTES = 12, 5
SESSIONLESS, NEW_SESSION = -1, 0

Ask = Callable[[RequestContext], Awaitable[list[int]]]
"""Asks for every partition; gives the error codes."""


class Connection:
    """What a connection remembers."""

    remembered_fetch: Any = None
    repeated_fetch: Any = None


async def list_ends(ctx: RequestContext) -> list[int]:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(COUNT)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
    return [row.error_code for row in (await list_offsets.handle(ctx, request)).topics[0].partitions]


async def ask_for_epochs(ctx: RequestContext) -> list[int]:
    asked = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(COUNT)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=asked)])
    answer = offset_for_leader_epoch.handle(ctx, request)
    assert isinstance(answer, Awaitable)
    return [row.error_code for row in (await answer).topics[0].partitions]


async def ask_for_producers(ctx: RequestContext) -> list[int]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=list(range(COUNT)))])
    answer = describe_producers.handle(ctx, request)
    assert isinstance(answer, Awaitable)
    return [row.error_code for row in (await answer).topics[0].partitions]


def read(session_epoch: int) -> Ask:
    async def ask(ctx: RequestContext) -> list[int]:
        asked = [FetchPartition(index, -1, 0, -1, -1, 1 << 20) for index in range(COUNT)]
        request = fetch_request([(TOPIC, asked)], max_wait_ms=0)._replace(session_epoch=session_epoch)
        frame = bytearray(encode_request(FETCH_VERSION, request))
        answer = fetch.handle(ctx, memoryview(frame), 0)
        frame[:] = bytes(len(frame))  # The receive buffer has other things in it by then.
        chunks = await answer if isinstance(answer, Awaitable) else await settled(answer)
        ((_, rows),) = parse_response(joined(chunks), FETCH_HEADER_BYTES, FETCH_VERSION).topics
        return [row.error_code for row in rows]

    return ask


def opened(hosted: Hosted) -> int:
    return sum(partition.log_or_none is not None for partition in hosted.table)


async def most_in_a_turn(hosted: Hosted, asking: asyncio.Future[list[int]]) -> int:
    """How many logs were opened without a turn for others in between."""
    most, before = 0, opened(hosted)
    while not asking.done():
        await asyncio.sleep(0)
        most, before = max(most, opened(hosted) - before), opened(hosted)
    return most


@pytest.mark.parametrize(
    ("ask", "remembers"),
    [
        pytest.param(list_ends, False, id="ListOffsets"),
        pytest.param(ask_for_epochs, False, id="OffsetForLeaderEpoch"),
        pytest.param(ask_for_producers, False, id="DescribeProducers"),
        pytest.param(read(SESSIONLESS), False, id="Fetch"),
        pytest.param(read(SESSIONLESS), True, id="Fetch that is remembered"),
        pytest.param(read(NEW_SESSION), False, id="Fetch with a session"),
    ],
)
def test_others_have_their_turn_while_a_request_opens_many_logs(ask: Ask, remembers: bool) -> None:
    async def scenario() -> None:
        hosted = Hosted(partitions=COUNT)
        connection = Connection() if remembers else None
        ctx = RequestContext(
            fetch_services(hosted), 1, FETCH_VERSION, 1, "c", "10.0.0.1", "PLAINTEXT", connection=connection
        )
        asking = asyncio.ensure_future(ask(ctx))
        assert await most_in_a_turn(hosted, asking) <= LOGS_INLINE_MAX
        assert asking.result() == [0] * COUNT
        assert opened(hosted) == COUNT

    run(scenario)


def _is_corrupt(partition: Partition) -> PartitionLog:
    raise CorruptLogError(str(partition.topic_partition))


def test_a_log_that_does_not_open_is_reported_for_its_partition_alone() -> None:
    async def scenario() -> None:
        hosted = Hosted(partitions=COUNT)
        hosted.partition(7)._open_log = _is_corrupt
        ctx = RequestContext(fetch_services(hosted), 1, FETCH_VERSION, 1, "c", "10.0.0.1", "PLAINTEXT")
        codes = await read(SESSIONLESS)(ctx)
        assert [index for index, code in enumerate(codes) if code] == [7]

    run(scenario)
