"""The APIs of groups, whoever decides what they ask: members, offsets, and what operators want to know.

A permission is that for the group. Topics have theirs as well: READ to commit or delete an offset, DESCRIBE to fetch
one. FindCoordinator for a transactional id needs DESCRIBE on that instead.
"""

from __future__ import annotations

from typing import Final

from ottla.api import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from ottla.api.entry import Api, Operation, Permission, Resource, declared_api
from ottla.wire import offset_commit as offset_commit_codec
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_CLUSTER, _GROUP = Resource.CLUSTER, Resource.GROUP

GROUP_APIS: Final[tuple[Api, ...]] = (
    declared_api(
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        find_coordinator.handle,
        Permission(_GROUP, Operation.DESCRIBE),
        error_response=find_coordinator.failed,
        heavy=True,
    ),
    declared_api(
        JoinGroupRequest,
        JoinGroupResponse,
        join_group.handle,
        Permission(_GROUP, Operation.READ),
        error_response=join_group.failed,
    ),
    declared_api(
        SyncGroupRequest,
        SyncGroupResponse,
        sync_group.handle,
        Permission(_GROUP, Operation.READ),
        error_response=sync_group.failed,
    ),
    declared_api(
        HeartbeatRequest,
        HeartbeatResponse,
        heartbeat.handle,
        Permission(_GROUP, Operation.READ),
        error_response=heartbeat.failed,
    ),
    declared_api(
        LeaveGroupRequest,
        LeaveGroupResponse,
        leave_group.handle,
        Permission(_GROUP, Operation.READ),
        error_response=leave_group.failed,
    ),
    Api(
        key=8,
        name="OffsetCommit",
        min_version=offset_commit_codec.VERSION_MIN,
        max_version=offset_commit_codec.VERSION_MAX,
        handler=offset_commit.handle,
        permission=Permission(_GROUP, Operation.READ),
        hot=True,
    ),
    declared_api(
        OffsetFetchRequest,
        OffsetFetchResponse,
        offset_fetch.handle,
        Permission(_GROUP, Operation.DESCRIBE),
        error_response=offset_fetch.failed,
        heavy=True,
    ),
    declared_api(
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        offset_delete.handle,
        Permission(_GROUP, Operation.DELETE),
        error_response=offset_delete.failed,
    ),
    declared_api(
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        describe_groups.handle,
        Permission(_GROUP, Operation.DESCRIBE),
        error_response=describe_groups.failed,
        heavy=True,
    ),
    declared_api(
        ListGroupsRequest,
        ListGroupsResponse,
        list_groups.handle,
        Permission(_CLUSTER, Operation.DESCRIBE),
        error_response=list_groups.failed,
        heavy=True,
    ),
    declared_api(
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        delete_groups.handle,
        Permission(_GROUP, Operation.DELETE),
        error_response=delete_groups.failed,
    ),
    declared_api(
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        consumer_group_heartbeat.handle,
        Permission(_GROUP, Operation.READ),
        error_response=consumer_group_heartbeat.failed,
    ),
    declared_api(
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        consumer_group_describe.handle,
        Permission(_GROUP, Operation.DESCRIBE),
        error_response=consumer_group_describe.failed,
        heavy=True,
    ),
)
