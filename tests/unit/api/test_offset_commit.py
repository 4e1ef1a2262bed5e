"""OffsetCommit, from request to answer."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from ottla.api import offset_commit, turns
from ottla.api.context import RequestContext
from ottla.api.deferred import Alone
from ottla.core.groups.offset_commands import CommitOffsets
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.schema import encode
from tests.unit.api.offset_services import OTHER_ID, OffsetServices
from tests.unit.api.turns import Turns
from tests.unit.core.groups.offset_coordinator import START_MS, TOPIC_ID

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def topic(*partitions: int, name: str = "t", topic_id: UUID = TOPIC_ID, note: str = "n") -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=10 + index, committed_leader_epoch=4, committed_metadata=note
            )
            for index in partitions
        ],
    )


def commit(services: OffsetServices, version: int, *topics: OffsetCommitRequestTopic) -> list[list[int]]:
    request = OffsetCommitRequest(group_id="g", topics=topics)
    answer = services.ask_hot(offset_commit, request, version, OffsetCommitResponse)
    assert [(item.name, item.topic_id) for item in answer.topics] == [
        (item.name, ZERO_UUID) if version < 10 else ("", item.topic_id) for item in topics
    ]
    for asked, answered in zip(topics, answer.topics, strict=True):
        indexes = [partition.partition_index for partition in asked.partitions]
        assert [partition.partition_index for partition in answered.partitions] == indexes
    return [[partition.error_code for partition in item.partitions] for item in answer.topics]


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize("later", [False, True])
def test_offsets_are_committed(version: int, later: bool) -> None:
    services = OffsetServices()
    services.groups.later = later
    assert commit(services, version, topic(0, 2)) == [[0, 0]]
    found = services.coordinator.state.offsets.get("g", "t", 2)
    assert found is not None
    assert (found.offset, found.metadata, found.leader_epoch) == (12, "n", 4 if version >= 6 else -1)
    assert found.topic_id == TOPIC_ID


@pytest.mark.parametrize("version", [9, 10])
def test_what_is_not_there_is_refused_by_itself(version: int) -> None:
    services = OffsetServices()
    topics = (topic(0, 3, -1), topic(0, 1, name="x", topic_id=OTHER_ID))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else UNKNOWN
    assert commit(services, version, *topics) == [[0, UNKNOWN, UNKNOWN], [unknown, unknown]]
    assert services.coordinator.state.offsets.count == 1


def test_without_anything_that_is_there_nobody_is_asked() -> None:
    services = OffsetServices()
    services.groups.refused["g"] = ErrorCode.NOT_COORDINATOR
    assert commit(services, 9, topic(3)) == [[UNKNOWN]]
    assert commit(services, 10, topic(0, topic_id=ZERO_UUID)) == [[ErrorCode.UNKNOWN_TOPIC_ID]]


@pytest.mark.parametrize("later", [False, True])
def test_a_refusal_is_the_answer_for_all_partitions_that_are_there(later: bool) -> None:
    services = OffsetServices()
    services.groups.later = later
    services.groups.refused["g"] = ErrorCode.NOT_COORDINATOR
    assert commit(services, 9, topic(0, 3, 1)) == [[ErrorCode.NOT_COORDINATOR, UNKNOWN, ErrorCode.NOT_COORDINATOR]]
    assert services.metrics.request_errors[8] == 1


LONG = tuple(topic(0, 1, 3, note="x" * 1000) for _ in range(30))


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("refused", [False, True])
def test_a_long_request_is_parsed_and_answered_in_a_thread(later: bool, refused: bool) -> None:
    services = OffsetServices()
    services.groups.later = later
    if refused:
        services.groups.refused["g"] = ErrorCode.NOT_COORDINATOR
    code = ErrorCode.NOT_COORDINATOR if refused else ErrorCode.NONE
    assert commit(services, 9, *LONG) == [[code, code, UNKNOWN]] * 30
    assert services.offload.runs == 2
    assert services.metrics.request_errors[8] == refused


@pytest.mark.parametrize("later", [False, True])
def test_others_have_their_turn_while_very_many_offsets_are_committed(
    monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    monkeypatch.setattr(offset_commit, "OFFSETS_PER_TURN", 7)
    services, counted = OffsetServices(), Turns(monkeypatch, turns)
    services.groups.later = later
    sizes: list[int] = []
    submit = services.groups._submit

    def noted(key: str, command: CommitOffsets) -> list[ErrorCode]:
        sizes.append(len(command.offsets))
        answer: list[ErrorCode] = submit(key, command)
        return answer

    monkeypatch.setattr(services.groups, "_submit", noted)
    monkeypatch.setattr(services.groups, "submit", counted.counted(services.groups.submit))
    assert commit(services, 9, *LONG) == [[0, 0, UNKNOWN]] * 30
    assert sizes == [7] * 8 + [4]
    assert counted.most_calls == 1


@pytest.mark.parametrize("later", [False, True])
def test_a_part_of_a_long_request_is_refused_by_itself(monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    """A member that is fenced on the way has committed what came before."""
    monkeypatch.setattr(offset_commit, "OFFSETS_PER_TURN", 20)
    services = OffsetServices()
    services.groups.later = later
    submit, asked = services.groups._submit, 0

    def fenced_later(key: str, command: CommitOffsets) -> list[ErrorCode]:
        nonlocal asked
        asked += 1
        if asked == 2:
            services.groups.refused["g"] = ErrorCode.FENCED_MEMBER_EPOCH
        answer: list[ErrorCode] = submit(key, command)
        return answer

    monkeypatch.setattr(services.groups, "_submit", fenced_later)
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    assert commit(services, 9, *LONG) == [[0, 0, UNKNOWN]] * 10 + [[fenced, fenced, UNKNOWN]] * 20
    assert services.metrics.request_errors[8] == 1


def test_a_later_commit_does_not_overtake_a_long_one() -> None:
    """It would be undone by the older one."""

    async def scenario() -> None:
        ctx = RequestContext(OffsetServices().services, 8, 9, 1, "c", "h", "PLAINTEXT")
        frame = encode(OffsetCommitRequest(group_id="g", topics=LONG), 9)
        answer = offset_commit.handle(ctx, memoryview(frame), 0)
        assert isinstance(answer, Alone)
        await answer

    asyncio.run(scenario())


def test_a_request_that_is_none_is_not_answered() -> None:
    services = OffsetServices()
    ctx = RequestContext(services.services, 8, 9, 1, "c", "h", "PLAINTEXT")
    for frame in (b"", encode(OffsetCommitRequest(group_id="g", topics=[topic(0)]), 9)[:-1]):
        with pytest.raises(MalformedMessageError):
            offset_commit.handle(ctx, memoryview(frame), 0)


def test_long_metadata_is_refused_by_itself() -> None:
    services = OffsetServices()
    topics = (topic(0, note="x" * 4097), topic(1), topic(5))
    assert commit(services, 9, *topics) == [[ErrorCode.OFFSET_METADATA_TOO_LARGE], [0], [UNKNOWN]]


@pytest.mark.parametrize(("version", "expiry"), [(4, START_MS + 500), (5, -1)])
def test_old_clients_say_how_long(version: int, expiry: int) -> None:
    services = OffsetServices()
    request = OffsetCommitRequest(group_id="g", retention_time_ms=500, topics=[topic(0)])
    services.ask_hot(offset_commit, request, version, OffsetCommitResponse)
    found = services.coordinator.state.offsets.get("g", "t", 0)
    assert found is not None
    assert found.expire_timestamp == expiry


@pytest.mark.parametrize(("version", "code"), [(7, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_the_member_and_the_version_are_told(version: int, code: ErrorCode) -> None:
    services = OffsetServices()
    request = OffsetCommitRequest(
        group_id="g", member_id="m", generation_id_or_member_epoch=3, group_instance_id="i", topics=[topic(0)]
    )
    answer = services.ask_hot(offset_commit, request, version, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == code
