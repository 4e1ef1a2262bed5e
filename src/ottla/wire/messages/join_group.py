"""JoinGroup: a member comes into the next generation of a classic group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Bytes, Int16, Int32, Message, String, ignorable, nullable_since, since


class JoinGroupRequestProtocol(Message):
    """An assignment protocol that the member can work with, and what it says in it."""

    name: String
    metadata: Bytes


class JoinGroupRequest(Message, api_key=11, versions=(0, 9), flexible_since=6):
    """Asks to be in the next generation. In version 0 the session timeout is the rebalance timeout too."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1), ignorable] = -1
    member_id: String
    group_instance_id: Annotated[String | None, since(5)] = None
    protocol_type: String
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: Annotated[String | None, since(8), ignorable] = None


class JoinGroupResponseMember(Message):
    """A member, as the leader of the group needs it for the assignment."""

    member_id: String
    group_instance_id: Annotated[String | None, since(5), ignorable] = None
    metadata: Bytes


class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible_since=6):
    """The generation; the leader also gets the members. Before version 7 the protocol's name must not be null."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, since(7), ignorable] = None
    protocol_name: Annotated[String | None, nullable_since(7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: String = ""
    members: Sequence[JoinGroupResponseMember] = []
