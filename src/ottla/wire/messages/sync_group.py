"""SyncGroup: the leader hands out a classic group's assignments, and every member fetches its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bytes, Int16, Int32, Message, String, ignorable, since


class SyncGroupRequestAssignment(Message):
    """What one member gets."""

    member_id: String
    assignment: Bytes


class SyncGroupRequest(Message, api_key=14, versions=(0, 5), flexible_since=4):
    """Asks for the member's assignment; from the leader with the assignments of all."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[String | None, since(3)] = None
    protocol_type: Annotated[String | None, since(5), ignorable] = None
    protocol_name: Annotated[String | None, since(5), ignorable] = None
    assignments: Sequence[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible_since=4):
    """The assignment."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, since(5), ignorable] = None
    protocol_name: Annotated[String | None, since(5), ignorable] = None
    assignment: Bytes = b""
