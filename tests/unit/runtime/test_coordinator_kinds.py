"""What coordinators of groups and of transactions refuse before anybody knows who coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.coordination import Command
from ottla.core.groups.classic_commands import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from ottla.core.groups.consumer_commands import ConsumerGroupHeartbeat
from ottla.core.transactions.commands import InitProducerId
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.runtime.coordinator_kinds import group_kind, transaction_kind
from ottla.runtime.coordinators import Coordinators
from tests.unit.runtime.counting import NODE_ID, CountingBroker

LED_ELSEWHERE = PartitionImage(replicas=(NODE_ID + 1,), isr=(NODE_ID + 1,), leader=NODE_ID + 1)


def join(group_id: str, session_timeout_ms: int) -> JoinGroup:
    return JoinGroup(
        group_id=group_id,
        member_id="",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=1000,
        protocol_type="consumer",
        protocols=(),
    )


def sync(group_id: str) -> SyncGroup:
    return SyncGroup(group_id=group_id, generation_id=1, member_id="m", group_instance_id=None, assignments=())


def refusal(coordinators: Coordinators[Any], command: Command[Any]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        coordinators.submit("key", command)
    return refused.value.code


def elsewhere(topic: str) -> MetadataImage:
    return MetadataImage(topics={topic: TopicImage(topic, UUID(int=1), (LED_ELSEWHERE,))})


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (join("g", 7000), ErrorCode.NOT_COORDINATOR),
        (join("g", 1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join("", 7000), ErrorCode.INVALID_GROUP_ID),
        (sync("g"), ErrorCode.NOT_COORDINATOR),
        (sync(""), ErrorCode.INVALID_GROUP_ID),
        (Heartbeat("", 1, "m", None), ErrorCode.INVALID_GROUP_ID),
        (LeaveGroup(group_id="", members=()), ErrorCode.INVALID_GROUP_ID),
        (ConsumerGroupHeartbeat(group_id="g", member_id="m", member_epoch=3), ErrorCode.NOT_COORDINATOR),
        (ConsumerGroupHeartbeat(group_id="g", member_id="m", member_epoch=0), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_member_that_can_never_be_one_need_not_look_for_a_coordinator_first(
    tmp_path: Path, command: Command[Any], code: ErrorCode
) -> None:
    broker = CountingBroker(tmp_path)
    kind = group_kind(lambda: broker.config, lambda: broker.image, lambda: UUID(int=1))
    groups = Coordinators(
        kind, broker.world, broker.table, broker.flushes, lambda: broker.config, has_files=lambda _: False
    )
    assert refusal(groups, command) is code
    groups.follow(elsewhere(CONSUMER_OFFSETS_TOPIC), NODE_ID)
    assert refusal(groups, command) is code


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (1, ErrorCode.NOT_COORDINATOR),
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (2**31 - 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_producer_with_a_timeout_that_is_none_hears_of_it_from_anybody(
    tmp_path: Path, timeout_ms: int, code: ErrorCode
) -> None:
    broker = CountingBroker(tmp_path)
    transactions = Coordinators(
        transaction_kind(lambda: broker.config, lambda: 2),
        broker.world,
        broker.table,
        broker.flushes,
        lambda: broker.config,
        has_files=lambda _: False,
    )
    assert refusal(transactions, InitProducerId("x", timeout_ms)) is code
    transactions.follow(elsewhere(TRANSACTION_STATE_TOPIC), NODE_ID)
    assert refusal(transactions, InitProducerId("x", timeout_ms)) is code
