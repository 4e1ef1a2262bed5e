"""ConsumerGroupHeartbeat in both versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.api import consumer_group_heartbeat
from ottla.model.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.unit.api.consumer_requests import ConsumerRequests
from tests.unit.core.groups.consumers import Topics


def request(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    given = {"group_id": "g", "member_id": "m", "member_epoch": 0, **fields}
    return ConsumerGroupHeartbeatRequest(**given)


def joining(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return request(rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[], **fields)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_is_heard_and_leaves(version: int) -> None:
    groups = ConsumerRequests(Topics(t=3))
    joined = groups.call(consumer_group_heartbeat, joining(), version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    (topic,) = joined.assignment.topic_partitions
    assert (topic.topic_id, list(topic.partitions)) == (groups.coordinator.image.topics["t"].id, [0, 1, 2])
    assert groups.coordinator.g.members["m"].client_host == "/10.0.0.1"
    owned = [TopicPartitions(topic_id=topic.topic_id, partitions=[0, 1, 2])]
    heard = groups.call(consumer_group_heartbeat, request(member_epoch=1, topic_partitions=owned), version)
    assert (heard.error_code, heard.member_epoch, heard.assignment) == (0, 1, None)
    assert heard.heartbeat_interval_ms > 0
    left = groups.call(consumer_group_heartbeat, request(member_epoch=-1), version)
    assert (left.error_code, left.member_epoch) == (0, -1)


def test_a_pattern_comes_with_version_1() -> None:
    groups = ConsumerRequests(Topics(t1=3, t2=1))
    asked = request(rebalance_timeout_ms=1000, subscribed_topic_regex="t[12]", topic_partitions=[])
    assert len(groups.call(consumer_group_heartbeat, asked, 1).assignment.topic_partitions) == 2


def test_an_id_is_made_for_version_0_only() -> None:
    groups = ConsumerRequests(Topics(t=3))
    assert groups.call(consumer_group_heartbeat, joining(member_id=""), 0).member_id
    refused = groups.call(consumer_group_heartbeat, joining(member_id=""), 1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "MemberId" in refused.error_message


def test_a_cluster_at_group_version_0_has_no_consumer_groups() -> None:
    coordinator = Topics(t=3)
    coordinator.image = replace(coordinator.image, features={"group.version": 0})
    answer = ConsumerRequests(coordinator).call(consumer_group_heartbeat, joining(), 1)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNSUPPORTED_VERSION, None)
    coordinator.image = replace(coordinator.image, features={"group.version": 1})
    assert ConsumerRequests(coordinator).call(consumer_group_heartbeat, joining(), 1).error_code == ErrorCode.NONE


def test_a_broker_may_not_offer_consumer_groups() -> None:
    groups = ConsumerRequests(Topics({"group.coordinator.rebalance.protocols": "classic"}, t=3))
    assert groups.call(consumer_group_heartbeat, joining(), 1).error_code == ErrorCode.UNSUPPORTED_VERSION
