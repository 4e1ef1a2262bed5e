"""JoinGroup in all its versions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api import join_group
from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.unit.api.group_requests import GroupRequests


def request(**fields: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata) for metadata in (b"m", b"again")]
    given = {"group_id": "g", "session_timeout_ms": 7000, "member_id": "", "protocol_type": "consumer", **fields}
    return JoinGroupRequest(**{"protocols": protocols, **given})


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins(version: int) -> None:
    groups = GroupRequests()
    answer = groups.call(join_group, request(rebalance_timeout_ms=9000), version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = groups.call(join_group, request(member_id=answer.member_id, rebalance_timeout_ms=9000), version)
    assert answer.error_code == 0
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (1, "range", answer.member_id)
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"m")]
    (member,) = groups.coordinator.group().members.values()
    assert (member.client_id, member.client_host) == ("c", "/10.0.0.1")
    assert member.rebalance_timeout_ms == (9000 if version else 7000)


@pytest.mark.parametrize("version", range(10))
def test_a_refusal_names_the_member(version: int) -> None:
    answer = GroupRequests().call(join_group, request(member_id="m"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_leader_that_comes_back_is_told_in_a_way_it_understands(version: int, skips: bool) -> None:
    groups = GroupRequests()
    first = groups.call(join_group, request(group_instance_id="i", rebalance_timeout_ms=9000), version)
    groups.coordinator.sync_all()
    again = groups.call(join_group, request(group_instance_id="i", rebalance_timeout_ms=9000), version)
    assert again.skip_assignment is skips
    assert (again.leader == first.member_id) is not skips
