"""DescribeGroups in all its versions."""

from __future__ import annotations

import pytest

from ottla.api import describe_groups
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from tests.unit.api.group_requests import GroupRequests


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(version: int) -> None:
    groups = GroupRequests()
    member_id = groups.stable_member()
    there, gone = groups.call(describe_groups, DescribeGroupsRequest(groups=["g", ""]), version).groups
    assert (there.error_code, there.group_state, there.protocol_type, there.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    assert [(member.member_id, member.member_assignment) for member in there.members] == [
        (member_id, member_id.encode())
    ]
    assert (gone.group_id, gone.group_state) == ("", "Dead")
    assert gone.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


def test_another_coordinator_is_named_for_each_group() -> None:
    groups = GroupRequests()
    groups.refusal = ErrorCode.NOT_COORDINATOR
    request = DescribeGroupsRequest(groups=["a", "b"])
    answers = groups.call(describe_groups, request, 6).groups
    assert [(group.group_id, group.error_code) for group in answers] == [("a", 16), ("b", 16)]
    assert describe_groups.failed(request, ErrorCode.NOT_COORDINATOR, "", 6).groups[1].error_code == 16
