"""OffsetCommit 2-10: a group remembers up to where it has consumed.

Topics have names until version 9 and ids from 10 on. A topic or partition that is not there is refused by itself; what
the coordinator says about the member is the answer for all partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.core.groups.offset_commands import CommitOffsets, NewOffset, new_offset
from ottla.model.chunks import Chunks
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire import offset_commit as codec
from ottla.wire.offset_commit import TOPIC_ID_SINCE, OffsetCommit

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

PARSED_INLINE_BYTES_MAX: Final = 64 * 1024
"""A longer request is parsed in a thread."""

Refused = Mapping[int, ErrorCode]
"""Partitions that are not there, by their place among all that were asked for."""


def handle(ctx: RequestContext, frame: memoryview, position: int) -> Chunks | Awaitable[Chunks]:
    if len(frame) > PARSED_INLINE_BYTES_MAX:
        return _handle_long(ctx, bytes(frame), position)
    return _commit(ctx, codec.parse(frame, position, ctx.api_version))


async def _handle_long(ctx: RequestContext, frame: bytes, position: int) -> Chunks:
    request = await ctx.services.world.offload.run(codec.parse, frame, position, ctx.api_version)
    answer = _commit(ctx, request)
    return answer if isinstance(answer, list) else await answer


def _commit(ctx: RequestContext, request: OffsetCommit) -> Chunks | Awaitable[Chunks]:
    group_id, epoch, member_id, instance_id, retention_ms, _ = request
    offsets, refused = _wanted(ctx, request)
    if not offsets:
        return _answer(ctx, request, [], refused)
    command = CommitOffsets(group_id, offsets, member_id, epoch, instance_id, retention_ms, ctx.api_version)
    try:
        codes = ctx.services.groups.submit(group_id, command)
    except ApiError as error:
        return _failed(ctx, request, error)
    if isinstance(codes, list):
        return _answer(ctx, request, codes, refused)
    return _when(ctx, request, codes, refused)


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


async def _when(
    ctx: RequestContext, request: OffsetCommit, codes: Awaitable[Sequence[ErrorCode]], refused: Refused
) -> Chunks:
    try:
        return _answer(ctx, request, await codes, refused)
    except ApiError as error:
        return _failed(ctx, request, error)


def _failed(ctx: RequestContext, request: OffsetCommit, error: ApiError) -> Chunks:
    """The request as a whole: that is what is said of each partition, whether it is there or not."""
    ctx.services.metrics.request_errors[ctx.api_key] += 1
    count = sum(len(partitions) for _, partitions in request.topics)
    return _answer(ctx, request, [error.code] * count, {})


def _answer(ctx: RequestContext, request: OffsetCommit, codes: Sequence[ErrorCode], refused: Refused) -> Chunks:
    each = iter(codes)
    if refused:
        all_codes = [refused[place] if place in refused else next(each) for place in range(len(codes) + len(refused))]
        each = iter(all_codes)
    return [codec.encode_response(ctx.api_version, ctx.correlation_id, request.topics, each)]
