"""Produce 3-13: append batches.

Each partition of a request stands for itself: one may be refused while the others are written. All appends are made
before anything is answered, so order is that of arrival. A request of very many partitions, or the first one to touch
many, whose logs are to be opened (`runtime.opening`), is served in turns, and what comes behind it on its connection
after that. An answer waits only where a topic asks for a flush or for a look into the records, where a transaction's
coordinator has to be asked, or, with acks=all, where followers are to have the batch (`replicated_answer`). acks=0 gets
no answer; if such a request fails, its connection is closed, which is the only sign that its producer can get. Message
formats 0 and 1 are refused with UNSUPPORTED_FOR_MESSAGE_FORMAT, zstd before version 7 with
UNSUPPORTED_COMPRESSION_TYPE, as Kafka does. Where another broker leads, version 10 and later say which. Version 8 and
later name the records that a batch is refused for, at most 100 of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.api.cluster_view import leader_endpoints
from ottla.api.context import RequestContext
from ottla.api.deferred import Alone, Deferred
from ottla.api.refusal import refusal
from ottla.api.replicated_answer import HeldAnswer, ReplicatedAnswer, check_still_in_sync
from ottla.model.chunks import Chunks
from ottla.model.errors import ApiError, ErrorCode, InvalidRecordsError, OttlaError
from ottla.runtime.appending import Appended
from ottla.runtime.opening import LOGS_INLINE_MAX, open_in_turns, unopened_led
from ottla.runtime.transaction_verification import TransactionalProduce
from ottla.wire import produce as codec
from ottla.wire.batch import CODEC_MASK, MAGIC
from ottla.wire.compression import Codec
from ottla.wire.fields import PARTITIONS_PER_REQUEST_MAX, TopicKey
from ottla.wire.produce import PARTITIONS_INLINE_MAX, ProducedPartition, ProduceRequest

if TYPE_CHECKING:
    from ottla.api.context import Caller, Services
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic

PRODUCE = 0
ZSTD_SINCE = 7
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ADMIN_CLIENT_ID = "__admin_client"
"""Who calls itself so may write to internal topics, as in Kafka."""
MAGIC_BYTE, CODEC_BYTE = 16, 22
"""Where a batch has its format, and the low byte of its attributes."""
PARTITIONS_PER_TURN: Final = 256
BYTES_PER_TURN: Final = 4 << 20

Topics: TypeAlias = Sequence[tuple[TopicKey, list[tuple[int, memoryview | None]]]]
Settled = bytes | ProducedPartition
Outcome = Settled | Awaitable[Settled]
"""What became of one partition: stored and encoded already, refused, or not known yet."""
Outcomes = list[tuple[TopicKey, list[Outcome]]]
Unreplicated = tuple[TopicKey, list[Outcome], int, "Partition", int]
"""A batch that followers do not have yet: topic, the topic's outcomes, its place there, partition, end offset."""
Append = Callable[["HostedTopic", "Partition", memoryview, int], Appended | Awaitable[Appended]]


class Written:
    """What became of the batches of a request, as far as they are appended."""

    __slots__ = ("failed", "outcomes", "unreplicated", "waits")

    def __init__(self) -> None:
        self.outcomes: Outcomes = []
        self.unreplicated: list[Unreplicated] = []
        self.waits = False
        """Something is not settled, besides what followers are to have."""
        self.failed = False


def handle(ctx: RequestContext, frame: memoryview, position: int) -> Chunks | Deferred | Awaitable[Chunks] | None:
    one = codec.parse_one(frame, position, ctx.api_version)
    if one is not None and one[0] != ACKS_NONE:
        return _handle_one(ctx, one)
    appender = ctx.services.appender
    is_now_or_never = appender.has_ahead  # What is in the log already is not asked for later.
    partitions_max = PARTITIONS_INLINE_MAX if not is_now_or_never else PARTITIONS_PER_REQUEST_MAX
    request = codec.parse_few(frame, position, ctx.api_version, partitions_max)
    if request is not None and (is_now_or_never or not _opens_many(ctx, request)):
        written = Written()
        _append_all(ctx, request, request.topics, written)
        return _answer_written(ctx, request, written)
    if not appender.hold(len(frame)):
        return _refuse_all(ctx, request or codec.parse(frame, position, ctx.api_version))
    return Alone(_answer_in_turns(ctx, _append_in_turns(ctx, bytearray(frame), position)))


def _opens_many(ctx: RequestContext, request: ProduceRequest) -> bool:
    """Whether logs are to be opened for the request, and more than a few."""
    if sum([len(partitions) for _, partitions in request.topics]) <= LOGS_INLINE_MAX:
        return False
    return len(_unopened(ctx, request.topics)) > LOGS_INLINE_MAX


def _unopened(ctx: RequestContext, topics: Topics) -> list[Partition]:
    find, found = ctx.services.partitions.find, []
    for key, partitions in topics:
        topic = find(key)
        if topic is not None:
            found += unopened_led(topic, partitions)
    return found


def _append_all(ctx: RequestContext, request: ProduceRequest, topics: Topics, written: Written) -> None:
    """Append what the request brings for these topics: its own, or a part of them."""
    if request.transactional_id is None:
        _append_each(ctx, request, topics, ctx.services.appender.append, written)
    else:
        transaction = _transactional(ctx, request.transactional_id, topics)
        _append_each(ctx, request, topics, transaction.append, written)


async def _append_in_turns(
    ctx: RequestContext, frame: bytearray, position: int
) -> tuple[int, Written, ReplicatedAnswer]:
    """Append what a request brings while others have their turn. Gives its acks, what was done, and what to wait for.

    Its connection's next requests have to wait, so that order is kept.
    """
    written, waiting = Written(), ReplicatedAnswer(lambda _: [])
    try:
        request = await ctx.services.world.offload.run(codec.parse, memoryview(frame), position, ctx.api_version)
        for topics in _turns(request.topics):
            await open_in_turns(_unopened(ctx, topics))
            before = len(written.unreplicated)
            _append_all(ctx, request, topics, written)
            _wait_for(written.unreplicated[before:], request.timeout_ms, waiting)
            await asyncio.sleep(0)
    finally:
        ctx.services.appender.let_go(len(frame))
    return request.acks, written, waiting


async def _answer_in_turns(ctx: RequestContext, appending: Awaitable[tuple[int, Written, ReplicatedAnswer]]) -> Chunks:
    """The answer when all is appended, and the request itself is forgotten."""
    acks, written, waiting = await appending
    errors = await waiting.errors()
    _refuse(ctx, written.unreplicated, errors)
    done: list[tuple[TopicKey, list[Settled]]] = written.outcomes  # type: ignore[assignment]
    failed = written.failed or bool(errors)
    if written.waits:
        done, failed = await _settle(written.outcomes)
    return await ctx.services.world.offload.run(_answer_joined, ctx, acks, done, failed=failed)


def _answer_joined(
    ctx: RequestContext, acks: int, parts: Sequence[tuple[TopicKey, list[Settled]]], *, failed: bool
) -> Chunks:  # runs in a thread
    return _answer(ctx, acks, _joined(parts), failed=failed) or []


def _turns(topics: Topics) -> Iterator[Topics]:
    """The topics of a request, cut into what may be appended before others have their turn."""
    some: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    partitions_left, bytes_left = PARTITIONS_PER_TURN, BYTES_PER_TURN
    for key, partitions in topics:
        first = 0
        for place, (_, records) in enumerate(partitions):
            partitions_left -= 1
            bytes_left -= len(records or b"")
            if partitions_left <= 0 or bytes_left <= 0:
                yield [*some, (key, partitions[first : place + 1])]
                some, first = [], place + 1
                partitions_left, bytes_left = PARTITIONS_PER_TURN, BYTES_PER_TURN
        if first < len(partitions):
            some.append((key, partitions[first:]))
        elif not partitions:
            some.append((key, []))
            partitions_left -= 1
            if partitions_left <= 0:
                yield some
                some, partitions_left, bytes_left = [], PARTITIONS_PER_TURN, BYTES_PER_TURN
    if some:
        yield some


def _joined(parts: Sequence[tuple[TopicKey, list[Settled]]]) -> list[tuple[TopicKey, list[Settled]]]:
    """The outcomes of topics that were cut, each topic whole again."""
    topics: list[tuple[TopicKey, list[Settled]]] = []
    for key, produced in parts:
        if topics and topics[-1][0] == key:
            topics[-1][1].extend(produced)
        else:
            topics.append((key, produced))
    return topics


def _refuse_all(ctx: RequestContext, request: ProduceRequest) -> Chunks | Deferred | Awaitable[Chunks] | None:
    written = Written()
    _append_each(ctx, request, request.topics, _no_room, written)
    return _answer_written(ctx, request, written)


def _no_room(topic: HostedTopic, partition: Partition, records: memoryview, now_ms: int) -> Appended:
    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many requests wait for their turn; try again")


def _handle_one(ctx: RequestContext, one: codec.OnePartition) -> Chunks | Deferred | Awaitable[Chunks] | None:
    """The same as `_append_all`, for the request that is by far the most frequent one."""
    services, version = ctx.services, ctx.api_version
    acks, timeout_ms, key, index, records = one
    try:
        topic, partition = services.partitions.leading(key, index)
        if topic.is_internal:
            _check_internal(ctx, topic)
        if acks != ACKS_LEADER or version < ZSTD_SINCE:
            _checked_records(topic, partition, acks, version, records)
        topic.counters.produce_requests += 1
        appended = services.appender.append(topic, partition, records, services.world.clock.now_ms())
        if type(appended) is Appended:
            start = (partition.log_or_none or partition.log).log_start_offset
    except OttlaError as error:
        refused = _refused(services, key, index, error, len(records))
        return [_encoded(ctx, [(key, [refused])], failed=True)]
    if type(appended) is Appended:
        base_offset, last_offset, append_time, _ = appended
        answer = codec.encode_one(version, ctx.correlation_id, key, index, base_offset, append_time, start)
        if partition.is_sole or acks != ACKS_ALL or partition.high_watermark > last_offset:
            return [answer]
        return hold_answer(ctx, partition, key, answer, last_offset + 1, timeout_ms)
    later = _append_later(services, acks, timeout_ms, key, partition, appended)  # type: ignore[arg-type]
    return _answer_later(ctx, acks, [(key, [later])])


def context_of(services: Services, caller: Caller, version: int, correlation_id: int) -> RequestContext:
    """Of a request that no dispatcher has seen; its client id is not known."""
    return RequestContext(
        services, PRODUCE, version, correlation_id, None, caller.host, caller.listener, caller.principal
    )


def hold_answer(
    ctx: RequestContext, partition: Partition, key: TopicKey, answer: bytes, end_offset: int, timeout_ms: int
) -> Deferred:
    """The answer to a request of one partition, for when the in-sync followers have everything below `end_offset`."""
    held = HeldAnswer(partition, answer, lambda error: _one_refused(ctx, key, partition.index, error))
    partition.when_replicated(end_offset, max(timeout_ms, 0), held)
    return held


def _one_refused(ctx: RequestContext, key: TopicKey, index: int, error: OttlaError) -> Chunks:
    return [_encoded(ctx, [(key, [_refused(ctx.services, key, index, error, 0)])], failed=True)]


def _append_each(
    ctx: RequestContext, request: ProduceRequest, topics: Topics, append: Append, written: Written
) -> None:
    version, services = ctx.api_version, ctx.services
    _, acks, timeout_ms, _ = request
    leading, now_ms = services.partitions.leading, services.world.clock.now_ms()
    stored, rest = codec.stored_layout(version)
    is_plain = acks == ACKS_LEADER and version >= ZSTD_SINCE
    for key, partitions in topics:
        produced: list[Outcome] = []
        for index, records in partitions:
            try:
                topic, partition = leading(key, index)
                if topic.is_internal:
                    _check_internal(ctx, topic)
                if records is None or not is_plain:
                    records = _checked_records(topic, partition, acks, version, records)
                topic.counters.produce_requests += 1
                appended = append(topic, partition, records, now_ms)
                if type(appended) is Appended:
                    start = (partition.log_or_none or partition.log).log_start_offset
            except OttlaError as error:
                produced.append(_refused(services, key, index, error, len(records or b"")))
                written.failed = True
                continue
            if type(appended) is Appended:
                base_offset, last_offset, append_time, _ = appended
                if acks == ACKS_ALL and not partition.is_sole and partition.high_watermark <= last_offset:
                    written.unreplicated.append((key, produced, len(produced), partition, last_offset + 1))
                produced.append(stored(index, 0, base_offset, append_time, start, rest))
            else:
                later = _append_later(services, acks, timeout_ms, key, partition, appended)  # type: ignore[arg-type]
                produced.append(later)
                written.waits = True
        written.outcomes.append((key, produced))


def _answer_written(
    ctx: RequestContext, request: ProduceRequest, written: Written
) -> Chunks | Deferred | Awaitable[Chunks] | None:
    """The answer to a request of which everything is appended, or on its way."""
    outcomes, unreplicated = written.outcomes, written.unreplicated
    if unreplicated:
        if not written.waits:
            return hold_answers(ctx, request.timeout_ms, outcomes, unreplicated, failed=written.failed)
        waiting = ReplicatedAnswer(lambda _: [])
        _wait_for(unreplicated, request.timeout_ms, waiting)
        return _hold_and_settle(ctx, outcomes, unreplicated, waiting)
    if written.waits:
        return _answer_later(ctx, request.acks, outcomes)
    return _answer(ctx, request.acks, outcomes, failed=written.failed)  # type: ignore[arg-type]


def hold_answers(
    ctx: RequestContext, timeout_ms: int, outcomes: Outcomes, unreplicated: Sequence[Unreplicated], *, failed: bool
) -> Deferred:
    """The answer of a request, when the in-sync followers of all its partitions caught up; all else is settled."""

    def finish(errors: Mapping[int, ApiError]) -> Chunks:
        _refuse(ctx, unreplicated, errors)
        settled: list[tuple[TopicKey, list[Settled]]] = outcomes  # type: ignore[assignment]
        return _answer(ctx, ACKS_ALL, settled, failed=failed or bool(errors)) or []

    waiting = ReplicatedAnswer(finish)
    _wait_for(unreplicated, timeout_ms, waiting)
    return waiting.begin()


async def _hold_and_settle(
    ctx: RequestContext, outcomes: Outcomes, unreplicated: Sequence[Unreplicated], waiting: ReplicatedAnswer
) -> Chunks:
    """The same, where something else is not settled."""
    _refuse(ctx, unreplicated, await waiting.errors())
    return await _answer_later(ctx, ACKS_ALL, outcomes)


def _wait_for(unreplicated: Sequence[Unreplicated], timeout_ms: int, waiting: ReplicatedAnswer) -> None:
    for _, _, _, partition, end_offset in unreplicated:
        waiting.wait_for(partition, end_offset, timeout_ms)


def _refuse(ctx: RequestContext, unreplicated: Sequence[Unreplicated], errors: Mapping[int, ApiError]) -> None:
    for number, error in errors.items():
        key, produced, place, partition, _ = unreplicated[number]
        produced[place] = _refused(ctx.services, key, partition.index, error, 0)


def _transactional(ctx: RequestContext, transactional_id: str, topics: Topics) -> TransactionalProduce:
    services = ctx.services
    return TransactionalProduce(
        transactional_id,
        ctx.api_version,
        topics,
        appender=services.appender,
        table=services.partitions,
        verifier=services.transactions,
        clock=services.world.clock,
        config=services.config,
    )


async def _append_later(
    services: Services,
    acks: int,
    timeout_ms: int,
    key: TopicKey,
    partition: Partition,
    appending: Awaitable[Appended],
) -> ProducedPartition:
    try:
        appended = await appending
        if acks == ACKS_ALL and not partition.is_sole:
            await partition.replicated(appended.last_offset + 1, timeout_ms)
            check_still_in_sync(partition)
    except OttlaError as error:
        return _refused(services, key, partition.index, error, 0)
    start = partition.log.log_start_offset
    return ProducedPartition(partition.index, 0, appended.base_offset, appended.log_append_time_ms, start)


def _check_internal(ctx: RequestContext, topic: HostedTopic) -> None:
    if ctx.client_id != ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic.name}")


def _checked_records(
    topic: HostedTopic, partition: Partition, acks: int, version: int, records: memoryview | None
) -> memoryview:
    """The records, unless the request's acks or version rule them out."""
    if records is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request needs one record batch per partition")
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {acks}")
    if acks == ACKS_ALL and not partition.is_sole:
        partition.check_in_sync(topic.config.min_insync_replicas)
    if (
        version < ZSTD_SINCE
        and len(records) > CODEC_BYTE
        and records[MAGIC_BYTE] == MAGIC
        and records[CODEC_BYTE] & CODEC_MASK == Codec.ZSTD
    ):
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_SINCE} or later")
    return records


def _refused(services: Services, key: TopicKey, index: int, error: OttlaError, size: int) -> ProducedPartition:
    refused = refusal(services, error)
    services.metrics.produce_errors += 1
    services.metrics.bytes_rejected += size
    leader = None
    if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader = services.partitions.current_leader(key, index)
    records = refused.record_errors if isinstance(refused, InvalidRecordsError) else ()
    return ProducedPartition(
        index, refused.code, record_errors=records, error_message=refused.message, current_leader=leader
    )


def _answer(
    ctx: RequestContext, acks: int, outcomes: list[tuple[TopicKey, list[Settled]]], *, failed: bool
) -> Chunks | None:
    if acks != ACKS_NONE:
        return [_encoded(ctx, outcomes, failed=failed)]
    if failed:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a produce request with acks=0 failed, so its connection closes")
    return None


def _encoded(ctx: RequestContext, outcomes: Sequence[tuple[TopicKey, Sequence[Settled]]], *, failed: bool) -> bytes:
    version, endpoints = ctx.api_version, []
    if failed and version >= codec.CURRENT_LEADER_SINCE:
        refused = [item for _, produced in outcomes for item in produced if isinstance(item, ProducedPartition)]
        leaders = [item.current_leader for item in refused if item.current_leader is not None]
        endpoints = leader_endpoints(ctx.services.image, ctx.listener, leaders) if leaders else []
    return codec.encode_response(version, ctx.correlation_id, outcomes, node_endpoints=endpoints)


async def _answer_later(ctx: RequestContext, acks: int, outcomes: Outcomes) -> Chunks:
    done, failed = await _settle(outcomes)
    return _answer(ctx, acks, done, failed=failed) or []


async def _settle(outcomes: Outcomes) -> tuple[list[tuple[TopicKey, list[Settled]]], bool]:
    """The outcomes when all of them are known, and whether one is an error."""
    done = [
        (key, [item if isinstance(item, bytes | ProducedPartition) else await item for item in produced])
        for key, produced in outcomes
    ]
    failed = any(not isinstance(item, bytes) and item.error_code for _, produced in done for item in produced)
    return done, failed
