"""Produce 3-13: append batches.

Each partition of a request stands for itself: one may be refused while the others are written. All appends are made
before anything is answered, so order is that of arrival; an answer waits only where a topic asks for a flush or for a
look into the records, or where a transaction's coordinator has to be asked. acks=0 gets no answer; if such a request
fails, its connection is closed, which is the only sign that its producer can get. Message formats 0 and 1 are refused
with UNSUPPORTED_FOR_MESSAGE_FORMAT, zstd before version 7 with UNSUPPORTED_COMPRESSION_TYPE, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ottla.api.refusal import refusal
from ottla.model.chunks import Chunks
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.runtime.appending import Appended
from ottla.runtime.transaction_verification import TransactionalProduce
from ottla.wire import produce as codec
from ottla.wire.batch import CODEC_MASK
from ottla.wire.compression import Codec
from ottla.wire.fields import TopicKey
from ottla.wire.produce import ProducedPartition, ProduceRequest

if TYPE_CHECKING:
    from ottla.api.context import RequestContext, Services
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic

ZSTD_SINCE = 7
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ADMIN_CLIENT_ID = "__admin_client"
"""Who calls itself so may write to internal topics, as in Kafka."""
CODEC_BYTE = 22
"""Where the low byte of a batch's attributes is."""

Outcome = bytes | ProducedPartition | Awaitable[ProducedPartition]
"""What became of one partition: stored and encoded already, refused, or not known yet."""
Outcomes = list[tuple[TopicKey, list[Outcome]]]
Append = Callable[["HostedTopic", "Partition", memoryview, int], Appended | Awaitable[Appended]]


def handle(ctx: RequestContext, frame: memoryview, position: int) -> Chunks | Awaitable[Chunks] | None:
    version = ctx.api_version
    request = codec.parse(frame, position, version)
    acks, topics = request.acks, request.topics
    if request.transactional_id is not None:
        return _handle_many(ctx, acks, topics, _transactional(ctx, request.transactional_id, request).append)
    if len(topics) == 1 and len(topics[0][1]) == 1 and acks:
        return _handle_one(ctx, acks, topics[0][0], *topics[0][1][0])
    return _handle_many(ctx, acks, topics)


def _handle_one(
    ctx: RequestContext, acks: int, key: TopicKey, index: int, records: memoryview | None
) -> Chunks | Awaitable[Chunks] | None:
    """The same as `_handle_many`, for the request that is by far the most frequent one."""
    services, version = ctx.services, ctx.api_version
    try:
        topic, partition = services.partitions.leading(key, index)
        if topic.is_internal:
            _check_internal(ctx, topic)
        if records is None or acks != ACKS_LEADER or version < ZSTD_SINCE:
            records = _checked_records(topic, acks, version, records)
        topic.counters.produce_requests += 1
        appended = services.appender.append(topic, partition, records, services.world.clock.now_ms())
    except OttlaError as error:
        refused = _refused(services, index, error, len(records or b""))
        return [codec.encode_response(version, ctx.correlation_id, [(key, [refused])])]
    if type(appended) is Appended:
        start = partition.log.log_start_offset
        base_offset, _, append_time, _ = appended
        return [codec.encode_one(version, ctx.correlation_id, key, index, base_offset, append_time, start)]
    later = _append_later(services, partition, appended)  # type: ignore[arg-type]
    return _answer_later(ctx, acks, [(key, [later])])


def _handle_many(
    ctx: RequestContext,
    acks: int,
    topics: Sequence[tuple[TopicKey, list[tuple[int, memoryview | None]]]],
    append: Append | None = None,
) -> Chunks | Awaitable[Chunks] | None:
    version, services = ctx.api_version, ctx.services
    leading, now_ms = services.partitions.leading, services.world.clock.now_ms()
    if append is None:
        append = services.appender.append
    stored, rest = codec.stored_layout(version)
    is_plain = acks == ACKS_LEADER and version >= ZSTD_SINCE
    outcomes: Outcomes = []
    waits = failed = False
    for key, partitions in topics:
        produced: list[Outcome] = []
        for index, records in partitions:
            try:
                topic, partition = leading(key, index)
                if topic.is_internal:
                    _check_internal(ctx, topic)
                if records is None or not is_plain:
                    records = _checked_records(topic, acks, version, records)
                topic.counters.produce_requests += 1
                appended = append(topic, partition, records, now_ms)
            except OttlaError as error:
                produced.append(_refused(services, index, error, len(records or b"")))
                failed = True
                continue
            if type(appended) is Appended:
                base_offset, _, append_time, _ = appended
                produced.append(stored(index, 0, base_offset, append_time, partition.log.log_start_offset, rest))
            else:
                produced.append(_append_later(services, partition, appended))  # type: ignore[arg-type]
                waits = True
        outcomes.append((key, produced))
    if waits:
        return _answer_later(ctx, acks, outcomes)
    return _answer(ctx, acks, outcomes, failed=failed)  # type: ignore[arg-type]


def _transactional(ctx: RequestContext, transactional_id: str, request: ProduceRequest) -> TransactionalProduce:
    services = ctx.services
    return TransactionalProduce(
        transactional_id,
        ctx.api_version,
        request.topics,
        appender=services.appender,
        table=services.partitions,
        verifier=services.transactions,
        clock=services.world.clock,
        config=services.config,
    )


async def _append_later(services: Services, partition: Partition, appending: Awaitable[Appended]) -> ProducedPartition:
    try:
        appended = await appending
    except OttlaError as error:
        return _refused(services, partition.index, error, 0)
    start = partition.log.log_start_offset
    return ProducedPartition(partition.index, 0, appended.base_offset, appended.log_append_time_ms, start)


def _check_internal(ctx: RequestContext, topic: HostedTopic) -> None:
    if ctx.client_id != ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic.name}")


def _checked_records(topic: HostedTopic, acks: int, version: int, records: memoryview | None) -> memoryview:
    """The records, unless the request's acks or version rule them out."""
    if records is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request needs one record batch per partition")
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {acks}")
    if acks == ACKS_ALL and topic.config.min_insync_replicas > 1:
        needed = topic.config.min_insync_replicas
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"1 replica is in sync, min.insync.replicas of {topic.name} is {needed}"
        )
    if version < ZSTD_SINCE and len(records) > CODEC_BYTE and records[CODEC_BYTE] & CODEC_MASK == Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_SINCE} or later")
    return records


def _refused(services: Services, index: int, error: OttlaError, size: int) -> ProducedPartition:
    refused = refusal(services, error)
    services.metrics.produce_errors += 1
    services.metrics.bytes_rejected += size
    return ProducedPartition(index, refused.code, error_message=refused.message)


def _answer(
    ctx: RequestContext, acks: int, outcomes: list[tuple[TopicKey, list[bytes | ProducedPartition]]], *, failed: bool
) -> Chunks | None:
    if acks != ACKS_NONE:
        return [codec.encode_response(ctx.api_version, ctx.correlation_id, outcomes)]
    if failed:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a produce request with acks=0 failed, so its connection closes")
    return None


async def _answer_later(ctx: RequestContext, acks: int, outcomes: Outcomes) -> Chunks:
    done = [
        (key, [item if isinstance(item, bytes | ProducedPartition) else await item for item in produced])
        for key, produced in outcomes
    ]
    failed = any(not isinstance(item, bytes) and item.error_code for _, produced in done for item in produced)
    return _answer(ctx, acks, done, failed=failed) or []
