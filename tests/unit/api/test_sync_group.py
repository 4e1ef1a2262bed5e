"""SyncGroup in all its versions."""

from __future__ import annotations

import pytest

from ottla.api import sync_group
from ottla.model.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.api.group_requests import GroupRequests


@pytest.mark.parametrize("version", range(6))
def test_a_leader_assigns(version: int) -> None:
    groups = GroupRequests()
    member_id, _ = groups.coordinator.new_member()
    groups.coordinator.pass_ms(0)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")],
    )
    answer = groups.call(sync_group, request, version)
    assert (answer.error_code, answer.assignment) == (0, b"a")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize(("version", "code"), [(4, 0), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)])
def test_the_protocol_must_be_named_where_it_can_be(version: int, code: int) -> None:
    groups = GroupRequests()
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=groups.stable_member())
    assert groups.call(sync_group, request, version).error_code == code


def test_a_refusal_has_no_assignment() -> None:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    answer = GroupRequests().call(sync_group, request, 0)
    assert (answer.error_code, answer.assignment) == (ErrorCode.UNKNOWN_MEMBER_ID, b"")
