"""ConsumerGroupDescribe 0-1: consumer groups with their members, what these have and what they shall have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.api.consumer_groups import check_offered
from ottla.api.described_groups import describe_all
from ottla.core.controller.image import TopicImage
from ottla.core.groups.consumer_commands import (
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from ottla.core.groups.records import Partitions
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


async def handle(ctx: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    check_offered(ctx.services)
    groups = await describe_all(
        dict.fromkeys(request.group_ids), partial(_describe, ctx), with_operations=request.include_authorized_operations
    )
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group has an id")
        answer = ctx.services.groups.submit(group_id, DescribeConsumerGroup(group_id))
        described: DescribedConsumerGroup = await answer if isawaitable(answer) else answer
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    topics = ctx.services.image.topics_by_id
    return DescribedGroup(
        group_id=group_id,
        group_state=described.group_state,
        group_epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor_name,
        members=[_member(member, topics) for member in described.members],
    )


def _member(member: DescribedConsumerMember, topics: Mapping[UUID, TopicImage]) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex or "",
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(member.target, topics),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(partitions: Partitions, topics: Mapping[UUID, TopicImage]) -> Assignment:
    """Topics that are gone have no name and are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=numbers)
            for topic_id, numbers in partitions
            if topic_id in topics
        ]
    )


def failed(
    request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str, _version: int
) -> ConsumerGroupDescribeResponse:
    groups = [DescribedGroup(group_id=name, error_code=code, error_message=message) for name in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=groups)
