"""OffsetFetch 1-10: up to where groups have consumed; several groups in one request from version 8 on.

A group or partition without offsets is no error: its offset is -1. Errors are those of a group, and of one group do not
touch the others; version 1 has a place for them at its partitions only. Topics have names until version 9 and ids from
10 on, where offsets of topics that are gone cannot be named and are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.core.groups.offset_commands import FetchedOffset, FetchedTopic, FetchOffsets, TopicPartitions
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.core.controller.image import MetadataImage

TOP_LEVEL_ERROR_SINCE: Final = 2
GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10

GROUPS_PER_TURN_MAX: Final = 100
OFFSETS_INLINE_MAX: Final = 2000
"""An answer with more offsets is made in a thread, and no turn of the loop looks up many more."""

Fetched: TypeAlias = list[FetchedTopic] | ApiError


def handle(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    groups = _groups(request, ctx.api_version)
    results: list[Fetched | Awaitable[list[FetchedTopic]]] = []
    _fetch_some(ctx, request, groups, results)
    if len(results) < len(groups):
        return _fetch_slowly(ctx, request, groups, results)
    fetched = [result for result in results if isinstance(result, list | ApiError)]
    if len(fetched) < len(results) or _count(fetched) > OFFSETS_INLINE_MAX:
        return _when_there(ctx, groups, results)
    return _response(ctx.services.image, ctx.api_version, groups, fetched)


def _groups(request: OffsetFetchRequest, version: int) -> Sequence[OffsetFetchRequestGroup]:
    if version >= GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _fetch(
    ctx: RequestContext, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> Fetched | Awaitable[list[FetchedTopic]]:
    """What the group's coordinator says, or something to wait for."""
    topics = group.topics
    asked = None if topics is None else _asked(ctx.services.image, topics, ctx.api_version)
    command = FetchOffsets(
        group_id=group.group_id,
        topics=asked,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        require_stable=require_stable,
    )
    try:
        return ctx.services.groups.submit(group.group_id, command)
    except ApiError as error:
        return error


def _asked(image: MetadataImage, topics: Sequence[OffsetFetchRequestTopics], version: int) -> list[TopicPartitions]:
    """What the coordinator is asked for. Ids that are not known it is not asked about."""
    if version < TOPIC_IDS_SINCE:
        return [TopicPartitions(topic.name, topic.partition_indexes) for topic in topics]
    found = [(image.topics_by_id.get(topic.topic_id), topic.partition_indexes) for topic in topics]
    return [TopicPartitions(topic.name, partitions, topic.id) for topic, partitions in found if topic is not None]


def _fetch_some(
    ctx: RequestContext,
    request: OffsetFetchRequest,
    groups: Sequence[OffsetFetchRequestGroup],
    results: list[Fetched | Awaitable[list[FetchedTopic]]],
) -> None:
    """Ask about the next groups, as many as one turn of the loop has time for."""
    first, found = len(results), 0
    for group in groups[first : first + GROUPS_PER_TURN_MAX]:
        result = _fetch(ctx, group, require_stable=request.require_stable)
        results.append(result)
        found += _count([result]) if isinstance(result, list) else 0
        if found > OFFSETS_INLINE_MAX:
            return


async def _fetch_slowly(
    ctx: RequestContext,
    request: OffsetFetchRequest,
    groups: Sequence[OffsetFetchRequestGroup],
    results: list[Fetched | Awaitable[list[FetchedTopic]]],
) -> OffsetFetchResponse:
    """Go on where so much was found that others have to have their turn."""
    while len(results) < len(groups):
        await asyncio.sleep(0)
        _fetch_some(ctx, request, groups, results)
    return await _when_there(ctx, groups, results)


async def _when_there(
    ctx: RequestContext,
    groups: Sequence[OffsetFetchRequestGroup],
    results: Sequence[Fetched | Awaitable[list[FetchedTopic]]],
) -> OffsetFetchResponse:
    fetched: list[Fetched] = []
    for result in results:
        try:
            if isinstance(result, list | ApiError):
                fetched.append(result)
            else:
                fetched.append(await result)
        except ApiError as error:
            fetched.append(error)
    image, version = ctx.services.image, ctx.api_version
    if _count(fetched) > OFFSETS_INLINE_MAX:
        return await ctx.services.world.offload.run(_response, image, version, groups, fetched)
    return _response(image, version, groups, fetched)


def _count(fetched: Sequence[Fetched]) -> int:
    return sum(len(topic.offsets) for topics in fetched if isinstance(topics, list) for topic in topics)


def _response(
    image: MetadataImage, version: int, groups: Sequence[OffsetFetchRequestGroup], fetched: Sequence[Fetched]
) -> OffsetFetchResponse:
    if version < GROUPS_SINCE:
        return _of_one(groups[0], fetched[0], version)
    return OffsetFetchResponse(
        groups=[_of_group(image, version, group, topics) for group, topics in zip(groups, fetched, strict=True)]
    )


def _of_group(
    image: MetadataImage, version: int, group: OffsetFetchRequestGroup, fetched: Fetched
) -> OffsetFetchResponseGroup:
    if isinstance(fetched, ApiError):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=fetched.code)
    if version >= TOPIC_IDS_SINCE:
        fetched = _with_ids(image, group, fetched)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        metadata=metadata,
                        error_code=code,
                    )
                    for partition, offset, leader_epoch, metadata, code in offsets
                ],
            )
            for topic, topic_id, offsets in fetched
        ],
    )


def _with_ids(image: MetadataImage, group: OffsetFetchRequestGroup, fetched: list[FetchedTopic]) -> list[FetchedTopic]:
    """The same with the ids of topics, and errors for those that are not known."""
    if group.topics is None:
        known = [(image.topics.get(topic.topic), topic) for topic in fetched]
        return [topic._replace(topic_id=found.id) for found, topic in known if found is not None]
    answered = {topic.topic_id for topic in fetched}
    unknown = [
        FetchedTopic(
            "",
            topic.topic_id,
            [FetchedOffset(index, error_code=ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes],
        )
        for topic in group.topics
        if topic.topic_id not in answered
    ]
    return [*fetched, *unknown]


def _of_one(group: OffsetFetchRequestGroup, fetched: Fetched, version: int) -> OffsetFetchResponse:
    """The answer until version 7, which knows one group."""
    code = ErrorCode.NONE
    if isinstance(fetched, ApiError):
        code, fetched = fetched.code, []
        if version < TOP_LEVEL_ERROR_SINCE:
            fetched = [
                FetchedTopic(
                    topic.name,
                    topic.topic_id,
                    [FetchedOffset(index, error_code=code) for index in topic.partition_indexes],
                )
                for topic in group.topics or ()
            ]
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        metadata=metadata,
                        error_code=partition_code,
                    )
                    for partition, offset, leader_epoch, metadata, partition_code in offsets
                ],
            )
            for topic, _, offsets in fetched
        ],
    )


def failed(request: OffsetFetchRequest, code: ErrorCode, message: str, version: int) -> OffsetFetchResponse:
    groups = _groups(request, version)
    error = ApiError(code, message)
    if version < GROUPS_SINCE:
        return _of_one(groups[0], error, version)
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in groups]
    )
