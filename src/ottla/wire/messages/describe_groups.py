"""DescribeGroups: classic groups with their members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import AUTHORIZED_OPERATIONS_OMITTED
from ottla.wire.schema import Bool, Bytes, Int16, Int32, Message, String, ignorable, since


class DescribeGroupsRequest(Message, api_key=15, versions=(0, 6), flexible_since=5):
    """Asks for groups by id."""

    groups: Sequence[String]
    include_authorized_operations: Annotated[Bool, since(3)] = False


class DescribedGroupMember(Message):
    """One member; its metadata and assignment are written by clients."""

    member_id: String
    group_instance_id: Annotated[String | None, since(4), ignorable] = None
    client_id: String
    client_host: String
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Message):
    """One group; `protocol_data` is the name of the protocol that was chosen."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, since(6), ignorable] = None
    group_id: String
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: Sequence[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, since(3)] = AUTHORIZED_OPERATIONS_OMITTED


class DescribeGroupsResponse(Message, api_key=15, versions=(0, 6), flexible_since=5):
    """One description for each group."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    groups: Sequence[DescribedGroup]
