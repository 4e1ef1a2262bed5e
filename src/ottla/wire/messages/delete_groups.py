"""DeleteGroups: forgets groups and their offsets."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Message, String


class DeleteGroupsRequest(Message, api_key=42, versions=(0, 2), flexible_since=2):
    """Names the groups."""

    groups_names: Sequence[String]


class DeletableGroupResult(Message):
    """What became of one group."""

    group_id: String
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, api_key=42, versions=(0, 2), flexible_since=2):
    """One result for each group."""

    throttle_time_ms: Int32 = 0
    results: Sequence[DeletableGroupResult]
