"""The table of partitions follows the metadata: roles, replicas that come and go, and who is told."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.partition import Partition
from tests.unit.runtime.hosted import NODE_ID, Hosted

TOPIC, TOPIC_ID = "orders", UUID(int=9)
OTHER = 2


def state(leader: int, *, replicas: tuple[int, ...] = (NODE_ID, OTHER), epoch: int = 0) -> PartitionImage:
    return PartitionImage(replicas=replicas, isr=replicas, leader=leader, leader_epoch=epoch, partition_epoch=epoch)


class Table(Hosted):
    """A table that notes what it tells of roles."""

    def __init__(self, *states: PartitionImage) -> None:
        super().__init__({})
        self.told: list[list[int]] = []
        self.table.on_roles_changed(lambda changed: self.told.append([partition.index for partition in changed]))
        self.host(*states)

    def host(self, *states: PartitionImage) -> list[Partition]:
        return self.table.host(TopicImage(TOPIC, TOPIC_ID, states), TopicConfig())

    def code_of(self, index: int) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.table.leader(TOPIC, index)
        return refused.value.code


def test_led_followed_and_foreign_partitions() -> None:
    hosted = Table(state(NODE_ID), state(OTHER), state(OTHER, replicas=(OTHER, 3)), state(-1))
    table = hosted.table
    assert [partition.index for partition in table.led()] == [0]
    assert [partition.index for partition in table.followed()] == [1, 3]
    assert table.leading_or_none(TOPIC, 0) is table.hosted(TOPIC_ID, 0)
    assert [table.leading_or_none(TOPIC, index) for index in (1, 2, 7, -1)] == [None] * 4
    assert [hosted.code_of(index) for index in (1, 2, 3)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
    assert hosted.code_of(4) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert table.hosted(TOPIC, 1).leader_id == OTHER
    with pytest.raises(ApiError):
        table.hosted(TOPIC, 2)
    assert [table.current_leader(TOPIC, index) for index in (0, 2, 3, 9)] == [(NODE_ID, 0), (OTHER, 0), None, None]
    assert hosted.told == [[0, 1, 3]]


def test_who_listens_hears_of_new_leaders_and_epochs_and_of_nothing_else() -> None:
    hosted = Table(state(NODE_ID), state(OTHER))
    hosted.told.clear()
    shrunk = replace(state(NODE_ID), isr=(NODE_ID,), partition_epoch=1)
    hosted.host(shrunk, state(OTHER))
    assert hosted.told == []
    assert hosted.table.leader(TOPIC, 0).isr == (NODE_ID,)
    hosted.host(replace(shrunk, leader=OTHER, leader_epoch=1, partition_epoch=2), state(OTHER))
    assert hosted.told == [[0]]
    assert hosted.table.led() == []


def test_a_replica_that_is_moved_away_is_let_go_and_one_that_comes_is_new() -> None:
    hosted = Table(state(OTHER))
    before = hosted.table.hosted(TOPIC, 0)
    assert hosted.host(state(OTHER, replicas=(OTHER, 3), epoch=1)) == [before]
    assert before.gone
    assert hosted.told[-1] == [0]
    hosted.host(state(OTHER, epoch=2))
    assert hosted.table.hosted(TOPIC, 0) is not before


def test_a_deleted_topic_is_told_of_too() -> None:
    hosted = Table(state(NODE_ID), state(OTHER))
    dropped = hosted.table.drop(TOPIC_ID)
    assert [partition.gone for partition in dropped] == [True, True]
    assert hosted.told[-1] == [0, 1]
    assert hosted.code_of(0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert hosted.table.drop(TOPIC_ID) == []
