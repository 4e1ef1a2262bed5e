"""OffsetCommit 2-10: a group remembers up to where it has consumed.

Topics have names until version 9 and ids from 10 on. A topic or partition that is not there is refused by itself; what
the coordinator says about the member is the answer for all others.

The offsets of an ordinary request are written in one batch, all or none. A long one is committed a thousand at a time,
with turns for others in between, and each of these parts stands for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.api.deferred import Alone, Deferred
from ottla.api.turns import in_turns
from ottla.core.groups.offset_commands import CommitOffsets, NewOffset, new_offset
from ottla.model.chunks import Chunks
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire import offset_commit as codec
from ottla.wire.offset_commit import (
    EMPTY_ENDS,
    TOPIC_ID_SINCE,
    VARYING_BYTES,
    OffsetCommit,
    unpack_varying,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

PARSED_INLINE_BYTES_MAX: Final = 32 * 1024
"""A longer request is parsed, and answered, in a thread. It has room for fewer than two thousand offsets."""
OFFSETS_PER_TURN: Final = 1000
"""Of a long request: so many are committed at a time."""

SHORT_BYTES_MAX: Final = 1024
"""No longer request is looked up among those that are repeated."""
CORRELATION_BYTES: Final = 4

_pack_correlation: Final = Struct(">i").pack

Key: TypeAlias = tuple[int, bytes]
"""The version of a request, and what it says before its offset."""
Codes: TypeAlias = list[ErrorCode] | ApiError
Refused = Mapping[int, ErrorCode]
"""Partitions that are not there, by their place among all that were asked for."""


def handle(ctx: RequestContext, frame: memoryview, position: int) -> Chunks | Deferred | Awaitable[Chunks]:
    size, services, version = len(frame), ctx.services, ctx.api_version
    varying_at = size - VARYING_BYTES
    if not position <= varying_at <= SHORT_BYTES_MAX:
        if size > PARSED_INLINE_BYTES_MAX:
            return Alone(_handle_long(ctx, bytes(frame), position))
        return _commit(ctx, codec.parse(frame, position, version))
    key = version, bytes(frame[position:varying_at])
    known = services.groups.repeated.known.get(key)
    if known is not None and known.image is services.image:
        offset, leader_epoch, end = unpack_varying(frame, varying_at)
        if offset >= 0 and end in EMPTY_ENDS:
            try:
                codes = known.coordinator.repeat(known, offset, leader_epoch)
            except ApiError as error:
                return _failed(ctx, codec.parse(frame, position, version), error, {})
            if codes is known.answer:
                return [_pack_correlation(ctx.correlation_id) + known.encoded_answer]
            if codes is not None:
                return _when(ctx, codec.parse(frame, position, version), codes, {})
    request = codec.parse_short(frame, position, version)
    if request is None:
        return _commit(ctx, codec.parse(frame, position, version))
    return _commit(ctx, request, key)


async def _handle_long(ctx: RequestContext, frame: bytes, position: int) -> Chunks:
    """Only the coordinator's part of it is done on the loop, and that in turns."""
    run = ctx.services.world.offload.run
    request, offsets, refused = await run(_parsed, ctx, frame, position)
    try:
        codes = await _commit_in_turns(ctx, request, offsets)
    except ApiError as error:
        codes = _each_failed(ctx, request, error, refused)
    return await run(_answer, ctx, request, codes, refused)


async def _commit_in_turns(ctx: RequestContext, request: OffsetCommit, offsets: Sequence[NewOffset]) -> list[ErrorCode]:
    """A code for each of the offsets; ApiError if none of them was accepted."""
    parts = [offsets[first : first + OFFSETS_PER_TURN] for first in range(0, len(offsets), OFFSETS_PER_TURN)]
    submitted = [_submit(ctx, _command(ctx, request, part)) async for part in in_turns(parts, 1)]
    answers = [await answer if isinstance(answer, Awaitable) else answer for answer in submitted]
    errors = [answer for answer in answers if isinstance(answer, ApiError)]
    if errors and len(errors) == len(parts):
        raise errors[0]
    ctx.services.metrics.request_errors[ctx.api_key] += bool(errors)
    codes: list[ErrorCode] = []
    for part, answer in zip(parts, answers, strict=True):
        codes += [answer.code] * len(part) if isinstance(answer, ApiError) else answer
    return codes


def _submit(ctx: RequestContext, command: CommitOffsets) -> Codes | Awaitable[Codes]:
    """What the coordinator says to a part of a request."""
    try:
        answer = ctx.services.groups.submit(command.group_id, command)
    except ApiError as error:
        return error
    return answer if isinstance(answer, list) else asyncio.ensure_future(_codes(answer))


async def _codes(answer: Awaitable[list[ErrorCode]]) -> Codes:
    try:
        return await answer
    except ApiError as error:
        return error


def _parsed(
    ctx: RequestContext, frame: bytes, position: int
) -> tuple[OffsetCommit, list[NewOffset], Refused]:  # runs in a thread
    request = codec.parse(frame, position, ctx.api_version)
    return request, *_wanted(ctx, request)


def _command(ctx: RequestContext, request: OffsetCommit, offsets: Sequence[NewOffset]) -> CommitOffsets:
    group_id, epoch, member_id, instance_id, retention_ms, _ = request
    return CommitOffsets(group_id, offsets, member_id, epoch, instance_id, retention_ms, ctx.api_version)


def _commit(ctx: RequestContext, request: OffsetCommit, key: Key | None = None) -> Chunks | Deferred:
    """`key` is given for a request without tagged fields: what it begins with, up to VARYING_BYTES before its end."""
    offsets, refused = _wanted(ctx, request)
    if not offsets:
        return _answer(ctx, request, [], refused)
    command = _command(ctx, request, offsets)
    try:
        codes = ctx.services.groups.submit(request.group_id, command)
    except ApiError as error:
        return _failed(ctx, request, error, refused)
    if key is not None and len(offsets) == 1 and not offsets[0].metadata and not refused and len(request.topics) == 1:
        _note(ctx, key, request, command)
    if isinstance(codes, list):
        return _answer(ctx, request, codes, refused)
    return _when(ctx, request, codes, refused)


def _note(ctx: RequestContext, key: Key, request: OffsetCommit, command: CommitOffsets) -> None:
    """A request for one partition was accepted; the next one may differ in nothing but the offset at its end."""
    groups = ctx.services.groups
    coordinator = groups.at_work_for(command.group_id)
    done = codec.encode_response(ctx.api_version, 0, request.topics, iter((ErrorCode.NONE,)))
    groups.repeated.note(key, coordinator, ctx.services.image, command, done[CORRELATION_BYTES:])


def _wanted(ctx: RequestContext, request: OffsetCommit) -> tuple[list[NewOffset], Refused]:
    """The offsets of partitions that are there, and the others."""
    image, by_id = ctx.services.image, ctx.api_version >= TOPIC_ID_SINCE
    offsets: list[NewOffset] = []
    refused: dict[int, ErrorCode] = {}
    for key, partitions in request.topics:
        topic = image.topics_by_id.get(key) if by_id else image.topics.get(key)  # type: ignore[arg-type]
        if topic is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            before = len(offsets) + len(refused)
            refused |= dict.fromkeys(range(before, before + len(partitions)), unknown)
            continue
        name, topic_id, count = topic.name, topic.id, len(topic.partitions)
        for index, offset, leader_epoch, metadata in partitions:
            if 0 <= index < count:
                offsets.append(new_offset((name, topic_id, index, offset, leader_epoch, metadata)))
            else:
                refused[len(offsets) + len(refused)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return offsets, refused


def _when(
    ctx: RequestContext, request: OffsetCommit, codes: Awaitable[Sequence[ErrorCode]], refused: Refused
) -> Deferred:
    """The answer, when the coordinator has one. Commits that wait for replicas are many: none of them costs a task."""
    deferred = Deferred()

    def answer(done: asyncio.Future[Sequence[ErrorCode]]) -> None:
        try:
            chunks = _answer(ctx, request, done.result(), refused)
        except ApiError as error:
            chunks = _failed(ctx, request, error, refused)
        deferred.complete(chunks)

    asyncio.ensure_future(codes).add_done_callback(answer)
    return deferred


def _failed(ctx: RequestContext, request: OffsetCommit, error: ApiError, refused: Refused) -> Chunks:
    return _answer(ctx, request, _each_failed(ctx, request, error, refused), refused)


def _each_failed(ctx: RequestContext, request: OffsetCommit, error: ApiError, refused: Refused) -> list[ErrorCode]:
    """The request as a whole: that is what is said of each partition that is there."""
    ctx.services.metrics.request_errors[ctx.api_key] += 1
    return [error.code] * (sum(len(partitions) for _, partitions in request.topics) - len(refused))


def _answer(ctx: RequestContext, request: OffsetCommit, codes: Sequence[ErrorCode], refused: Refused) -> Chunks:
    each = iter(codes)
    if refused:
        all_codes = [refused[place] if place in refused else next(each) for place in range(len(codes) + len(refused))]
        each = iter(all_codes)
    return [codec.encode_response(ctx.api_version, ctx.correlation_id, request.topics, each)]
