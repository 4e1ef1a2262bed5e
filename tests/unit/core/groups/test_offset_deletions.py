"""Offsets that go because somebody says so, or with their topic."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.core.controller.image import ImageDelta, TopicImage
from ottla.core.groups import offsets
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.offset_commands import DeleteOffsets, TopicPartitions
from ottla.core.groups.records import OffsetRecord
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.groups.offset_coordinator import TOPIC_ID, OffsetCoordinator


def delete(*topics: TopicPartitions) -> DeleteOffsets:
    return DeleteOffsets(group_id="g", topics=topics)


def test_offsets_are_deleted_and_missing_ones_are_no_error() -> None:
    c = OffsetCoordinator()
    c.commit(5)
    c.commit(6, partition=1)
    del c.log[:]
    assert c.ask(delete(TopicPartitions("t", [0, 7]), TopicPartitions("u", [0]))) == [[ErrorCode.NONE] * 2, [0]]
    assert c.log == [(OffsetRecord("g", "t", 0, -1), -1)]
    assert (c.fetch().offset, c.fetch(partition=1).offset) == (-1, 6)
    assert "g" in c.state.groups


def test_what_a_transaction_holds_is_deleted_too() -> None:
    c = OffsetCoordinator()
    c.commit_in(9, 5)
    assert c.ask(delete(TopicPartitions("t", [0]))) == [[ErrorCode.NONE]]
    c.end(9, committed=True)
    assert c.fetch().offset == -1


def test_an_unknown_group_is_an_error() -> None:
    assert OffsetCoordinator().code(delete()) is ErrorCode.GROUP_ID_NOT_FOUND


class Subscribed(ClassicGroup):
    """A group whose members read topic t; without `may` it cannot be seen what they read."""

    may = True

    def check_offset_delete(self) -> None:
        if not self.may:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic == "t"


def test_offsets_of_subscribed_topics_stay() -> None:
    c = OffsetCoordinator()
    c.commit(5)
    c.commit(6, topic="u")
    group = c.state.groups["g"] = Subscribed("g")
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    asked = delete(TopicPartitions("t", [0, 1]), TopicPartitions("u", [0]))
    assert c.ask(asked) == [[subscribed, subscribed], [ErrorCode.NONE]]
    assert (c.fetch().offset, c.fetch(topic="u").offset) == (5, -1)
    group.may = False
    assert c.code(asked) is ErrorCode.NON_EMPTY_GROUP


def gone(name: str, topic_id: UUID = TOPIC_ID) -> ImageDelta:
    return ImageDelta(topics_deleted=(TopicImage(name, topic_id),))


def test_offsets_of_a_deleted_topic_go() -> None:
    c = OffsetCoordinator()
    c.commit(5)
    c.commit(5, group_id="h", partition=3)
    c.commit(6, topic="u")
    c.commit(7, partition=2, retention_time_ms=1, version=2)
    c.commit_in(9, 8, partition=1)
    assert not offsets.metadata_changed(c.state, gone("t")).records
    c.pass_ms(0)
    assert not c.state.offsets.has_topic("g", "t")
    assert not c.state.offsets.has_any("h")
    assert c.fetch(topic="u").offset == 6
    c.end(9, committed=True)
    assert c.fetch(partition=1).offset == -1


def test_offsets_of_a_newer_topic_with_the_name_stay() -> None:
    c = OffsetCoordinator()
    c.commit(5)
    c.commit_in(9, 6, partition=1)
    offsets.metadata_changed(c.state, gone("t", UUID(int=1)))
    c.pass_ms(0)
    assert c.fetch().offset == 5
    c.end(9, committed=True)
    assert c.fetch(partition=1).offset == 6


def test_what_a_transaction_wanted_forgotten_goes_with_the_topic() -> None:
    c = OffsetCoordinator()
    c.commit_in(9, -1)
    assert "g" in c.state.groups
    offsets.metadata_changed(c.state, gone("t"))
    c.pass_ms(0)
    assert not c.state.offsets.has_any("g")


@pytest.mark.parametrize("before", ["committed", "held"])
def test_a_transaction_on_a_new_topic_does_not_lose_its_offset_to_the_deletion_of_the_old_one(before: str) -> None:
    c = OffsetCoordinator()
    if before == "committed":
        c.commit(5)
    else:
        c.commit_in(8, 5)
    offsets.metadata_changed(c.state, gone("t"))
    new = UUID(int=70)
    with pytest.raises(ApiError) as refused:
        c.commit_in(9, 1, topic_id=new)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    c.pass_ms(0)
    assert c.commit_in(9, 1, topic_id=new) == [ErrorCode.NONE]
    c.end(9, committed=True)
    assert c.fetch().offset == 1


def test_a_transaction_on_a_new_topic_waits_for_no_deletion_that_cannot_touch_it() -> None:
    c = OffsetCoordinator()
    c.commit(5, group_id="h")
    c.commit(5, partition=1)
    offsets.metadata_changed(c.state, gone("t"))
    assert c.commit_in(9, 1, topic_id=UUID(int=70)) == [ErrorCode.NONE]
    c.pass_ms(0)
    c.end(9, committed=True)
    assert (c.fetch().offset, c.fetch(partition=1).offset, c.fetch(group_id="h").offset) == (1, -1, -1)


def test_the_offsets_of_two_deleted_topics_of_one_name_go() -> None:
    c = OffsetCoordinator()
    c.commit(5)
    c.commit_in(9, 6, topic_id=UUID(int=70), partition=1)
    c.end(9, committed=True)
    both = (TopicImage("t", TOPIC_ID), TopicImage("t", UUID(int=70)))
    offsets.metadata_changed(c.state, ImageDelta(topics_deleted=both))
    c.pass_ms(0)
    assert (c.fetch().offset, c.fetch(partition=1).offset) == (-1, -1)
    assert not c.state.offsets.forgetting


def test_other_changes_of_metadata_do_nothing() -> None:
    c = OffsetCoordinator()
    offsets.metadata_changed(c.state, ImageDelta())
    assert not c.state.offsets.sweeps
