"""LeaveGroup: one member until version 2, several from 3 on."""

from __future__ import annotations

import pytest

from ottla.api import leave_group
from ottla.model.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.api.group_requests import GroupRequests


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves(version: int) -> None:
    groups = GroupRequests()
    request = LeaveGroupRequest(group_id="g", member_id=groups.stable_member())
    assert groups.call(leave_group, request, version).error_code == 0
    assert groups.call(leave_group, request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_several_leave(version: int) -> None:
    groups = GroupRequests()
    ids = [groups.stable_member(), "stranger"]
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id) for member_id in ids])
    answer = groups.call(leave_group, request, version)
    assert answer.error_code == 0
    assert [(member.member_id, member.error_code) for member in answer.members] == [
        (ids[0], 0),
        ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


@pytest.mark.parametrize("version", range(6))
def test_a_group_without_a_name(version: int) -> None:
    answer = GroupRequests().call(leave_group, LeaveGroupRequest(group_id=""), version)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
