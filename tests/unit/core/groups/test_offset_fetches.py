"""OffsetFetch for one group."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.offset_commands import FetchedOffset, FetchedTopic, FetchOffsets, TopicPartitions
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import ZERO_UUID
from tests.unit.core.groups.offset_coordinator import TOPIC_ID, OffsetCoordinator


def test_an_unknown_group_has_no_offsets_and_no_error() -> None:
    c = OffsetCoordinator()
    assert c.fetch() == (0, -1, -1, "", ErrorCode.NONE)
    assert c.ask(FetchOffsets(group_id="g", topics=None)) == []


def test_each_partition_is_answered_in_its_place() -> None:
    c = OffsetCoordinator()
    c.commit(5, partition=1)
    asked = [TopicPartitions("x", [0]), TopicPartitions("t", [2, 1, 1]), TopicPartitions("y", [])]
    assert c.ask(FetchOffsets(group_id="g", topics=asked)) == [
        FetchedTopic("x", ZERO_UUID, [FetchedOffset(0)]),
        FetchedTopic(
            "t", ZERO_UUID, [FetchedOffset(2), FetchedOffset(1, 5, 3, "note"), FetchedOffset(1, 5, 3, "note")]
        ),
        FetchedTopic("y", ZERO_UUID, []),
    ]


def test_without_topics_all_offsets_are_told() -> None:
    c = OffsetCoordinator()
    c.commit(5, partition=1)
    c.commit(6, topic="u")
    c.commit(7, topic="v", group_id="other")
    c.commit_in(9, 8, topic="w")
    assert [(topic, offsets[0][:2]) for topic, _, offsets in c.ask(FetchOffsets(group_id="g", topics=None))] == [
        ("t", (1, 5)),
        ("u", (0, 6)),
    ]


def test_who_wants_stable_offsets_waits_for_transactions() -> None:
    c = OffsetCoordinator()
    c.commit(5)
    c.commit(6, partition=1)
    c.commit_in(9, 8)
    unstable = (0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert c.fetch().offset == 5
    assert c.fetch(require_stable=True) == unstable
    assert c.fetch(partition=1, require_stable=True).offset == 6
    [found] = c.ask(FetchOffsets(group_id="g", topics=None, require_stable=True))
    assert found.offsets == [unstable, (1, 6, 3, "note", ErrorCode.NONE)]
    c.end(9, committed=True)
    assert c.fetch(require_stable=True).offset == 8


def test_offsets_of_a_topic_with_the_same_name_do_not_count_by_id() -> None:
    c = OffsetCoordinator()
    c.commit(5)
    c.commit(6, partition=1, retention_time_ms=10_000, version=2)

    def fetched(topic_id: UUID) -> list[int]:
        [found] = c.ask(FetchOffsets(group_id="g", topics=[TopicPartitions("t", [0, 1], topic_id)]))
        assert found.topic_id == topic_id
        return [offset.offset for offset in found.offsets]

    assert fetched(TOPIC_ID) == [5, 6]
    assert fetched(UUID(int=8)) == [-1, 6]
    assert fetched(ZERO_UUID) == [5, 6]


class Strict(ClassicGroup):
    """A group that asks who reads."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if (member_id, member_epoch) != ("m", 3):
            raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)


def test_a_consumer_group_is_asked_who_may_read() -> None:
    c = OffsetCoordinator()
    c.state.groups["g"] = Strict("g")
    arguments: dict[str, Any] = {"group_id": "g", "topics": None, "member_id": "m"}
    assert c.code(FetchOffsets(**arguments, member_epoch=3)) is ErrorCode.NONE
    assert c.code(FetchOffsets(**arguments, member_epoch=2)) is ErrorCode.STALE_MEMBER_EPOCH
