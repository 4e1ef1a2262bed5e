"""OffsetFetch, from request to answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from ottla.api import offset_fetch
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.unit.api.offset_services import OTHER_ID, OffsetServices
from tests.unit.core.groups.offset_coordinator import TOPIC_ID


@pytest.fixture
def services() -> OffsetServices:
    services = OffsetServices()
    services.coordinator.commit(5)
    services.coordinator.commit(6, partition=1)
    services.coordinator.commit(7, topic="gone")
    return services


def request(
    version: int, topics: Sequence[tuple[str, UUID, list[int]]] | None, *group_ids: str, stable: bool = False
) -> OffsetFetchRequest:
    group_ids = group_ids or ("g",)
    if version >= 8:
        return OffsetFetchRequest(
            require_stable=stable,
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=None
                    if topics is None
                    else [OffsetFetchRequestTopics(name=n, topic_id=i, partition_indexes=p) for n, i, p in topics],
                )
                for group_id in group_ids
            ],
        )
    return OffsetFetchRequest(
        group_id=group_ids[0],
        require_stable=stable,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=partitions) for name, _, partitions in topics],
    )


def fetch(services: OffsetServices, version: int, asked: OffsetFetchRequest) -> dict[str, Any]:
    """By group: the error, or what there is of each topic."""
    answer = services.ask(offset_fetch, asked, version, OffsetFetchResponse)
    if version >= 8:
        return {group.group_id: group.error_code or _topics(group.topics) for group in answer.groups}
    return {"g": answer.error_code or _topics(answer.topics)}


def _topics(topics: Sequence[Any]) -> list[tuple[Any, list[tuple[int, int, int, str, int]]]]:
    return [
        (
            getattr(topic, "topic_id", ZERO_UUID) if not topic.name else topic.name,
            [
                (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
                for p in topic.partitions
            ],
        )
        for topic in topics
    ]


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("later", [False, True])
def test_offsets_are_fetched(services: OffsetServices, version: int, later: bool) -> None:
    services.groups.later = later
    epoch = 3 if version >= 5 else -1
    found = fetch(services, version, request(version, [("t", TOPIC_ID, [1, 2, 0])]))
    name = TOPIC_ID if version >= 10 else "t"
    assert found == {"g": [(name, [(1, 6, epoch, "note", 0), (2, -1, -1, "", 0), (0, 5, epoch, "note", 0)])]}


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_are_fetched(services: OffsetServices, version: int) -> None:
    epoch = 3 if version >= 5 else -1
    of_topic = [(0, 5, epoch, "note", 0), (1, 6, epoch, "note", 0)]
    if version >= 10:
        # A topic that is gone has no id.
        assert fetch(services, version, request(version, None)) == {"g": [(TOPIC_ID, of_topic)]}
    else:
        gone = ("gone", [(0, 7, epoch, "note", 0)])
        assert fetch(services, version, request(version, None)) == {"g": [("t", of_topic), gone]}


def test_ids_that_are_not_known(services: OffsetServices) -> None:
    asked = request(10, [("", OTHER_ID, [0, 4]), ("", TOPIC_ID, [0]), ("", ZERO_UUID, [1])])
    code = ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(services, 10, asked) == {
        "g": [
            (TOPIC_ID, [(0, 5, 3, "note", 0)]),
            (OTHER_ID, [(0, -1, -1, "", code), (4, -1, -1, "", code)]),
            (ZERO_UUID, [(1, -1, -1, "", code)]),
        ]
    }


def test_groups_are_answered_each_by_itself(services: OffsetServices) -> None:
    services.coordinator.commit(9, group_id="h")
    services.groups.refused["i"] = ErrorCode.NOT_COORDINATOR
    for services.groups.later in (False, True):
        found = fetch(services, 9, request(9, [("t", TOPIC_ID, [0])], "g", "i", "h", "j"))
        assert found == {
            "g": [("t", [(0, 5, 3, "note", 0)])],
            "i": ErrorCode.NOT_COORDINATOR,
            "h": [("t", [(0, 9, 3, "note", 0)])],
            "j": [("t", [(0, -1, -1, "", 0)])],
        }


def test_very_many_groups_and_very_many_offsets(services: OffsetServices) -> None:
    group_ids = [f"g{number}" for number in range(offset_fetch.GROUPS_PER_TURN_MAX + 5)]
    found = fetch(services, 8, request(8, [("t", TOPIC_ID, [0])], *group_ids))
    assert list(found) == group_ids
    assert services.offload.runs == 0
    many = list(range(offset_fetch.OFFSETS_INLINE_MAX + 1))
    [(_, offsets)] = fetch(services, 8, request(8, [("t", TOPIC_ID, many)]))["g"]
    assert len(offsets) == len(many)
    assert services.offload.runs == 1


def test_others_have_their_turn_between_a_few_groups_with_very_many_offsets(
    services: OffsetServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = services.groups.submit, 0
    most_in_a_turn = in_a_turn = 0

    def submit(key: str, command: Any) -> Any:
        nonlocal asked, in_a_turn, most_in_a_turn
        asked, in_a_turn = asked + 1, in_a_turn + 1
        most_in_a_turn = max(most_in_a_turn, in_a_turn)
        return real(key, command)

    async def sleep(_: float) -> None:
        nonlocal in_a_turn
        in_a_turn = 0

    monkeypatch.setattr(services.groups, "submit", submit)
    monkeypatch.setattr("ottla.api.offset_fetch.asyncio.sleep", sleep)
    many = list(range(offset_fetch.OFFSETS_INLINE_MAX + 1))
    group_ids = ["g", "h", "k", "l"]
    found = fetch(services, 8, request(8, [("t", TOPIC_ID, many)], *group_ids))
    assert list(found) == group_ids
    assert (asked, most_in_a_turn) == (len(group_ids), 1)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("version", range(1, 11))
def test_a_refusal_stands_where_the_version_has_a_place(services: OffsetServices, version: int, later: bool) -> None:
    services.groups.later = later
    code = services.groups.refused["g"] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    found = fetch(services, version, request(version, [("t", TOPIC_ID, [0])]))
    assert found == {"g": [("t", [(0, -1, -1, "", code)])] if version == 1 else code}


@pytest.mark.parametrize("version", [1, 7, 8])
def test_a_failure_as_a_whole(version: int) -> None:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    answer = offset_fetch.failed(request(version, [("t", TOPIC_ID, [0])]), code, "", version)
    if version == 1:
        assert answer.topics[0].partitions[0].error_code == code
    elif version == 7:
        assert (answer.error_code, answer.topics) == (code, [])
    else:
        assert [group.error_code for group in answer.groups] == [code]


@pytest.mark.parametrize("version", [7, 8])
def test_stable_offsets(services: OffsetServices, version: int) -> None:
    services.coordinator.commit_in(9, 20)
    asked = [("t", TOPIC_ID, [0])]
    unstable = (0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetch(services, version, request(version, asked, stable=True)) == {"g": [("t", [unstable])]}
    assert fetch(services, version, request(version, asked)) == {"g": [("t", [(0, 5, 3, "note", 0)])]}
