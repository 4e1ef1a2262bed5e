"""Heartbeat in all its versions."""

from __future__ import annotations

import pytest

from ottla.api import heartbeat
from ottla.model.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest
from tests.unit.api.group_requests import GroupRequests


@pytest.mark.parametrize("version", range(5))
def test_a_member_is_heard(version: int) -> None:
    groups = GroupRequests()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=groups.stable_member())
    assert groups.call(heartbeat, request, version).error_code == 0
    groups.coordinator.new_member()
    assert groups.call(heartbeat, request, version).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_goes_on_while_its_coordinator_is_loaded(refusal: ErrorCode | None, code: ErrorCode) -> None:
    groups = GroupRequests()
    groups.refusal = refusal
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert groups.call(heartbeat, request, 4).error_code == code
