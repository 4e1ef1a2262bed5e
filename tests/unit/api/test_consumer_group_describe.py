"""ConsumerGroupDescribe in both versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.api import consumer_group_describe, described_groups
from ottla.model.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.unit.api.consumer_requests import ConsumerRequests
from tests.unit.api.turns import Turns
from tests.unit.core.groups.consumers import Topics


@pytest.mark.parametrize("version", [0, 1])
def test_groups_are_described_and_missing_ones_are_named(version: int) -> None:
    c = Topics(t=2, gone=1)
    c.consumer("m", "t", "gone", instance_id="i").join()
    c.image = Topics(t=2).image
    request = ConsumerGroupDescribeRequest(group_ids=["g", "none", "g", ""])
    found, missing, empty = ConsumerRequests(c).call(consumer_group_describe, request, version).groups
    assert (found.error_code, found.group_state, found.group_epoch, found.assignor_name) == (0, "Stable", 1, "uniform")
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.member_epoch, member.member_type) == ("m", "i", 1, 1)
    assert [(topic.topic_name, list(topic.partitions)) for topic in member.assignment.topic_partitions] == [
        ("t", [0, 1])
    ]
    assert member.target_assignment == member.assignment
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID


def test_others_have_their_turn_while_very_many_groups_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, turns = ConsumerRequests(Topics(t=2)), Turns(monkeypatch, described_groups)
    monkeypatch.setattr(requests, "submit", turns.counted(requests.submit))
    names = [f"none-{number}" for number in range(3 * described_groups.GROUPS_PER_TURN)]
    described = requests.call(consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=names), 1).groups
    assert [group.group_id for group in described] == names
    assert turns.calls == len(names)
    assert turns.most_calls <= described_groups.GROUPS_PER_TURN


@pytest.mark.parametrize("how", ["level", "config"])
def test_where_there_are_no_consumer_groups_none_is_described(how: str) -> None:
    c = Topics({"group.coordinator.rebalance.protocols": "classic"} if how == "config" else {}, t=2)
    if how == "level":
        c.image = replace(c.image, features={"group.version": 0})
    request = ConsumerGroupDescribeRequest(group_ids=["g", "h"])
    described = ConsumerRequests(c).call(consumer_group_describe, request, 1).groups
    assert [group.group_id for group in described] == ["g", "h"]
    assert {group.error_code for group in described} == {ErrorCode.UNSUPPORTED_VERSION}


def test_a_failure_is_told_for_each_group() -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["a", "b"])
    answer = consumer_group_describe.failed(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, "no", 1)
    assert [group.error_code for group in answer.groups] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
