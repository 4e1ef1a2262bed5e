"""ListOffsets 1-11: the offset for a timestamp, or earliest, latest, of the largest timestamp, earliest local,
latest tiered.

A lookup by timestamp finds the exact record: the time index leads to a batch, which is read and, where it is
compressed, decompressed in a thread; in one that would take too long it finds the first record. Nothing at or above
the high watermark is found, and for a reader of committed transactions nothing at or above the last stable offset; a
follower (replica id 0 or more) sees all there is, and -2 asks any replica, whoever leads. A new leader that does not
know yet what is committed answers OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE: an end that it named now
might go back. Without tiered storage "latest tiered" (-5) and "earliest pending upload" (-6) answer -1, as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.api.refusal import refusal
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.runtime import leader_epochs
from ottla.runtime.opening import open_in_turns, unopened
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.runtime.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Times below 0 have a meaning each, and no other does."""
NEVER = 1 << 15
PARTITIONS_PER_TURN: Final = 256
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LEADER_EPOCH_SINCE = 4
NOT_AVAILABLE_SINCE = 5
CONSUMER, DEBUGGER = -1, -2
"""As replica ids: somebody who sees what is committed, and a tool that looks at one replica."""


class Found(NamedTuple):
    """Where a lookup led; -1 for what there is not."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


async def handle(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    await open_in_turns(unopened(ctx.services.partitions, asked))
    topics, looked_up = [], 0
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            looked_up += 1
            if not looked_up % PARTITIONS_PER_TURN:
                await asyncio.sleep(0)
            if asked[topic.name, partition.partition_index] > 1:
                partitions.append(_refused(partition, ErrorCode.INVALID_REQUEST))
            elif request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
                partitions.append(_refused(partition, ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                partitions.append(await _answer(ctx, topic.name, partition, request))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


async def _answer(
    ctx: RequestContext, topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest
) -> ListOffsetsPartitionResponse:
    services = ctx.services
    try:
        if asked.timestamp < 0 and ctx.api_version < FIRST_VERSION.get(asked.timestamp, NEVER):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        find = services.partitions.hosted if request.replica_id == DEBUGGER else services.partitions.leader
        partition = find(topic, asked.partition_index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        found = await _find(ctx, partition, asked.timestamp, request)
    except OttlaError as error:
        return _refused(asked, refusal(services, error).code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        offset=found.offset,
        timestamp=found.timestamp,
        leader_epoch=found.leader_epoch if ctx.api_version >= LEADER_EPOCH_SINCE else -1,
    )


async def _find(ctx: RequestContext, partition: Partition, timestamp: int, request: ListOffsetsRequest) -> Found:
    log = partition.log
    is_consumer = request.replica_id == CONSUMER
    end = _end(partition, request.isolation_level) if is_consumer else log.log_end_offset
    if timestamp == LATEST:
        if is_consumer:
            _check_caught_up(ctx, partition)
        return Found(end, leader_epoch=leader_epochs.latest_epoch(partition))
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Found(log.log_start_offset, leader_epoch=leader_epochs.epoch_of(partition, log.log_start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return Found()
    run = ctx.services.world.offload.run
    async with ctx.services.lookup:
        if timestamp == MAX_TIMESTAMP:
            found = await run(log.offset_of_max_timestamp)
        else:
            found = await run(log.offset_for_timestamp, timestamp, end)
    if found is None or found[0] >= end:
        if is_consumer:
            _check_caught_up(ctx, partition)
        return Found()
    return Found(*found)


def _end(partition: Partition, isolation_level: int) -> int:
    return partition.last_stable_offset if isolation_level == READ_COMMITTED else partition.high_watermark


def _check_caught_up(ctx: RequestContext, partition: Partition) -> None:
    if partition.is_catching_up:
        code = ErrorCode.OFFSET_NOT_AVAILABLE
        if ctx.api_version < NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        raise ApiError(code, f"the new leader of {partition.topic_partition} waits for its followers; ask again")


def _refused(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
