"""LeaveGroup: takes members out of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int16, Int32, Message, String, ignorable, since, until


class MemberIdentity(Message):
    """A member by its id, or by its instance id when the former is empty."""

    member_id: String
    group_instance_id: String | None = None
    reason: Annotated[String | None, since(5), ignorable] = None


class LeaveGroupRequest(Message, api_key=13, versions=(0, 5), flexible_since=4):
    """Names one member, from version 3 on several."""

    group_id: String
    member_id: Annotated[String, until(2)] = ""
    members: Annotated[Sequence[MemberIdentity], since(3)] = []


class MemberResponse(Message):
    """What became of one member."""

    member_id: String
    group_instance_id: String | None = None
    error_code: Int16 = 0


class LeaveGroupResponse(Message, api_key=13, versions=(0, 5), flexible_since=4):
    """One result for each member."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    members: Annotated[Sequence[MemberResponse], since(3)] = []
