"""DeleteGroups in all its versions."""

from __future__ import annotations

import pytest

from ottla.api import delete_groups
from ottla.core.groups.records import OffsetRecord
from ottla.model.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from tests.unit.api.group_requests import GroupRequests


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_go(version: int) -> None:
    groups = GroupRequests()
    groups.stable_member()
    for partition in range(2000):
        groups.coordinator.shard.replay(OffsetRecord("o", "t", partition, 1), -1)
    answer = groups.call(delete_groups, DeleteGroupsRequest(groups_names=["g", "o", "none", "o"]), version)
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("o", 0),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert list(groups.coordinator.shard.state.groups) == ["g"]


def test_a_failure_is_that_of_every_group() -> None:
    answer = delete_groups.failed(DeleteGroupsRequest(groups_names=["a", "b"]), ErrorCode.NOT_COORDINATOR, "", 2)
    assert [(result.group_id, result.error_code) for result in answer.results] == [("a", 16), ("b", 16)]
