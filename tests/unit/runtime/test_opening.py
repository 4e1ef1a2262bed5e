"""A request that is the first to touch very many partitions does not keep everybody else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api import describe_producers, fetch, list_offsets, offset_for_leader_epoch, produce
from ottla.api.context import RequestContext
from ottla.api.deferred import Alone, settled
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import CorruptLogError, ErrorCode
from ottla.runtime import appending
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
from ottla.wire.produce_client import encode_request as encode_produce
from ottla.wire.produce_client import parse_response as parse_produced
from tests.unit.api import replica_services
from tests.unit.api.fetch_services import fetch_services, joined
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run
from tests.unit.runtime.replicas import Cluster

COUNT = 60
FETCH_VERSION, FETCH_HEADER_BYTES = 12, 5
PRODUCE_VERSION = 9
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


def produced(version: int) -> bytearray:
    body = encode_produce(version, [(TOPIC, [(index, bytes(batch_of())) for index in range(COUNT)])], acks=1)
    return bytearray(body)


def test_others_have_their_turn_while_a_producer_is_the_first_to_write_to_many_partitions() -> None:
    async def scenario() -> None:
        hosted = Hosted(partitions=COUNT)
        ctx = produce_context(hosted)
        frame = produced(ctx.api_version)
        answer = produce.handle(ctx, memoryview(frame), 0)
        assert isinstance(answer, Alone)  # Or requests behind it would overtake it.
        frame[:] = bytes(len(frame))
        answering = asyncio.ensure_future(produce_codes(answer, ctx.api_version))
        assert await most_in_a_turn(hosted, answering) <= LOGS_INLINE_MAX
        assert answering.result() == [0] * COUNT
        assert [partition.log.log_end_offset for partition in hosted.table] == [1] * COUNT

    run(scenario)


def test_a_producer_whose_logs_are_open_is_served_at_once() -> None:
    async def scenario() -> None:
        hosted = Hosted(partitions=COUNT)
        hosted.open_logs()
        ctx = produce_context(hosted)
        assert isinstance(produce.handle(ctx, memoryview(produced(ctx.api_version)), 0), list)

    run(scenario)


def test_producers_that_wait_for_logs_hold_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        hosted = Hosted(partitions=COUNT)
        ctx = produce_context(hosted)
        monkeypatch.setattr(appending, "WAITING_BYTES_MAX", len(produced(ctx.api_version)))
        first = produce.handle(ctx, memoryview(produced(ctx.api_version)), 0)
        second = produce.handle(ctx, memoryview(produced(ctx.api_version)), 0)
        assert isinstance(first, Alone)
        assert isinstance(second, list)
        assert set(await produce_codes(second, ctx.api_version)) == {ErrorCode.REQUEST_TIMED_OUT}
        assert await produce_codes(first, ctx.api_version) == [0] * COUNT
        assert hosted.appender.hold(len(produced(ctx.api_version)))  # All of the room is there again.

    run(scenario)


def produce_context(hosted: Hosted) -> RequestContext:
    services = replica_services.services(cast(Cluster, SimpleNamespace(replicas={1: hosted})))
    return RequestContext(services, 0, PRODUCE_VERSION, 1, "c", "10.0.0.1", "PLAINTEXT")


async def produce_codes(answer: Any, version: int) -> list[int]:
    chunks = answer if isinstance(answer, list) else await answer
    ((_, rows),) = parse_produced(joined(chunks), FETCH_HEADER_BYTES, version).topics
    return [row.error_code for row in rows]
