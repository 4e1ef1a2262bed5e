"""ListGroups in all its versions."""

from __future__ import annotations

import pytest

from ottla.api import list_groups
from ottla.model.errors import ErrorCode
from ottla.wire.messages.list_groups import ListGroupsRequest
from tests.unit.api.group_requests import GroupRequests


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(version: int) -> None:
    groups = GroupRequests()
    groups.stable_member()
    (group,) = groups.call(list_groups, ListGroupsRequest(), version).groups
    assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
        "g",
        "consumer",
        "Stable",
        "classic",
    )


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [(["STABLE "], [], 1), (["Empty"], [], 0), ([], ["Classic"], 1), ([], ["share"], 0), ([], ["nonsense"], 0)],
)
def test_filters_take_any_case(states: list[str], types: list[str], found: int) -> None:
    groups = GroupRequests()
    groups.stable_member()
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    assert len(groups.call(list_groups, request, 5).groups) == found


def test_while_a_coordinator_is_loaded_there_is_no_list() -> None:
    groups = GroupRequests()
    groups.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert groups.call(list_groups, ListGroupsRequest(), 5).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
