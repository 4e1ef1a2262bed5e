"""Heartbeat: a member of a classic group says that it is alive."""

from __future__ import annotations

from typing import Annotated

from ottla.wire.schema import Int16, Int32, Message, String, ignorable, since


class HeartbeatRequest(Message, api_key=12, versions=(0, 4), flexible_since=4):
    """The member and the generation that it believes to be in."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[String | None, since(3)] = None


class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible_since=4):
    """Nothing, or why the member has to join again."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
