"""ListGroups: the groups that a broker is the coordinator of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int16, Int32, Message, String, ignorable, since


class ListGroupsRequest(Message, api_key=16, versions=(0, 5), flexible_since=3):
    """Asks for groups in some states and of some types; an empty list means all."""

    states_filter: Annotated[Sequence[String], since(4)] = []
    types_filter: Annotated[Sequence[String], since(5)] = []


class ListedGroup(Message):
    """One group."""

    group_id: String
    protocol_type: String
    group_state: Annotated[String, since(4), ignorable] = ""
    group_type: Annotated[String, since(5), ignorable] = ""


class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible_since=3):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    groups: Sequence[ListedGroup] = []
