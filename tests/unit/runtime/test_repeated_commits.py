"""Commits that differ from earlier ones in the offset: when they are known, and what becomes of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from ottla.core.groups.records import ClassicGroupRecord, OffsetRecord
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC
from ottla.runtime.coordinator_log import build
from ottla.runtime.coordinator_shard import CoordinatorShard
from ottla.runtime.offset_codec import encode_plain_offset
from ottla.runtime.repeated_commits import KEY_BYTES_MAX, KEYS_MAX
from ottla.wire.batch import read_header
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.schema import decode, encode
from tests.unit.api.committing_node import COMPACTED, IDS, CommittingNode, stable

RESPONSE_HEADER_BYTES = 5


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 20)

    asyncio.run(bounded())


def request(
    offset: int, *, note: str | None = "", partitions: tuple[int, ...] = (0,), **more: Any
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        **{"group_id": "g", **more},
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=IDS["t"],
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=4,
                        committed_metadata=note,
                    )
                    for index in partitions
                ],
            )
        ],
    )


class Asking:
    """Asks a node, and counts what is answered from memory."""

    def __init__(self, node: CommittingNode) -> None:
        self.node = node
        self.repeats = 0
        self._repeat = CoordinatorShard.repeat

    def counted(self) -> Any:
        def repeat(coordinator: CoordinatorShard[Any], *arguments: Any) -> Any:
            self.repeats += 1
            return self._repeat(coordinator, *arguments)

        return patch.object(CoordinatorShard, "repeat", repeat)

    async def code(self, asked: OffsetCommitRequest | bytes, version: int = 9) -> int:
        frame = asked if isinstance(asked, bytes) else encode(asked, version)
        with self.counted():
            [answer] = await self.node.ask(frame, version)
        found = decode(OffsetCommitResponse, answer, version, RESPONSE_HEADER_BYTES)
        [topic] = found.topics
        [code] = {partition.error_code for partition in topic.partitions}
        return code

    def committed(self) -> int | None:
        found = self.node.offset("g")
        return None if found is None else found.offset


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("note", ["", None])
def test_from_the_third_time_on_a_request_is_known(version: int, note: str | None) -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(5):
            assert await asking.code(request(offset, note=note), version) == ErrorCode.NONE
            assert asking.committed() == offset
        assert asking.repeats == 3
        found = asking.node.offset("g")
        assert found is not None
        assert (found.leader_epoch, found.metadata, found.topic_id) == (4, "", IDS["t"])
        assert found.commit_timestamp == asking.node.hosted.clock.ms

    run(scenario)


def test_what_is_written_is_what_would_be_written() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            asking.node.hosted.clock.ms += 1
            await asking.code(request(offset))
        now_ms = asking.node.hosted.clock.ms
        [prepared] = asking.node.repeated.known.values()
        assert prepared is not None
        batch, header = prepared.encode(77, 5, now_ms)
        record = encode_plain_offset(OffsetRecord("g", "t", 0, 77, 5, "", now_ms, -1, IDS["t"]))
        assert record is not None
        assert bytes(batch)[16:] == bytes(build(record, 1, now_ms, -1, -1, 0))[16:]
        assert header[3:] == read_header(batch)[3:]

    run(scenario)


@pytest.mark.parametrize(
    "other",
    [
        request(9, note="n"),
        request(9, note="\x01"),
        request(9, note="\x00"),
        request(-1),
        request(9, partitions=(1,)),
        request(9, partitions=(0, 1)),
        request(9, group_id="h"),
        request(9, group_instance_id=""),
    ],
)
def test_another_request_takes_the_ordinary_way(other: OffsetCommitRequest) -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            await asking.code(request(offset))
        for _ in range(3):
            asking.repeats = 0
            await asking.code(other)
            if other.topics[0].partitions[0].committed_metadata or other.topics[0].partitions[0].committed_offset < 0:
                assert asking.repeats == 0
        assert await asking.code(request(50)) == ErrorCode.NONE
        assert asking.committed() == 50

    run(scenario)


def test_another_version_is_another_request() -> None:
    """A consumer group's member may not commit with version 8, and what is asked by id has no name."""

    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for version in (8, 8, 9, 9, 10, 10):
            await asking.code(request(1), version)
        assert asking.repeats == 0
        assert sorted(version for version, _ in asking.node.repeated.known) == [8, 9, 10]

    run(scenario)


def test_tagged_fields_that_look_like_an_offset_are_none() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for content in range(5):
            varying = content.to_bytes(8) + (4).to_bytes(4) + b"\x01\x00\x00\x00"
            frame = encode(request(33), 9)[:-1] + b"\x01\x63" + bytes([len(varying)]) + varying
            assert await asking.code(frame) == ErrorCode.NONE
            assert asking.committed() == 33
        assert asking.repeats == 0

    run(scenario)


def test_what_begins_as_a_known_request_and_ends_as_none_is_refused() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            await asking.code(request(offset))
        for end in (b"\x02\x00\x00\x00", b"\x01\x00\x00\x01", b"\x00\x01\x00\x00"):
            with pytest.raises(MalformedMessageError):
                await asking.code(encode(request(9), 9)[:-4] + end)
        assert asking.committed() == 2

    run(scenario)


def test_members_are_checked_and_heard_of_each_time() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        asking.node.group_is(stable("g", 3))
        member = {"member_id": "m", "generation_id_or_member_epoch": 3}
        for offset in range(4):
            asking.node.hosted.clock.ms += 10
            assert await asking.code(request(offset, **member)) == ErrorCode.NONE
        coordinator = asking.node.groups.at_work_for("g")
        assert coordinator is not None
        group: Any = coordinator.shard.state.groups["g"]  # type: ignore[attr-defined]
        found = group.members["m"]
        assert found.deadline_ms == asking.node.hosted.clock.ms + found.session_timeout_ms
        asking.node.group_is(stable("g", 4))
        assert await asking.code(request(9, **member)) == ErrorCode.ILLEGAL_GENERATION
        assert asking.node.services.metrics.request_errors[8] == 1
        asking.node.group_is(ClassicGroupRecord(group_id="g", gone=True))
        assert await asking.code(request(9, **member)) == ErrorCode.GROUP_ID_NOT_FOUND
        assert asking.repeats == 4
        assert asking.committed() == 3

    run(scenario)


def test_a_topic_that_went_is_not_committed_any_more() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            await asking.code(request(offset))
        asking.node.know({"u": 1})
        assert await asking.code(request(9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asking.node.know({"t": 1})
        for offset in (10, 11):
            assert await asking.code(request(offset)) == ErrorCode.NONE
        assert asking.repeats == 1
        assert await asking.code(request(12)) == ErrorCode.NONE
        assert (asking.repeats, asking.committed()) == (2, 12)

    run(scenario)


def test_who_does_not_coordinate_any_more_says_so() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            await asking.code(request(offset))
        index = asking.node.groups.partition_for("g")
        asking.node.groups.resign(index)
        assert not asking.node.repeated.known
        assert await asking.code(request(9)) == ErrorCode.NOT_COORDINATOR
        asking.node.groups.elect(index, 1)
        assert await asking.code(request(9)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asking.node.groups.loaded()
        assert asking.committed() == 2
        assert await asking.code(request(10)) == ErrorCode.NONE
        assert await asking.code(request(11)) == ErrorCode.NONE
        assert asking.committed() == 11
        found = asking.node.groups.at_work_for("g")
        assert [prepared.coordinator for prepared in asking.node.repeated.known.values() if prepared] == [found]

    run(scenario)


def test_a_coordinator_that_has_resigned_takes_nothing() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            await asking.code(request(offset))
        [prepared] = asking.node.repeated.known.values()
        assert prepared is not None
        prepared.coordinator.resign()
        before = asking.node.seen()
        assert prepared.coordinator.repeat(prepared, 9, 4) is None
        assert asking.node.seen() == before

    run(scenario)


def test_the_answer_waits_for_the_sync() -> None:
    async def scenario() -> None:
        node = CommittingNode(dataclasses.replace(COMPACTED, flush_messages=1))
        asking = Asking(node)
        partition = node.hosted.partition(node.groups.partition_for("g"), CONSUMER_OFFSETS_TOPIC)
        for offset in range(4):
            assert await asking.code(request(offset)) == ErrorCode.NONE
            assert partition.log.recovery_point == partition.high_watermark == offset + 1
        assert asking.repeats == 2

    run(scenario)


def test_answers_leave_in_order_and_only_when_all_before_them_is_committed() -> None:
    async def scenario() -> None:
        node = CommittingNode(dataclasses.replace(COMPACTED, flush_messages=1))
        asking = Asking(node)
        for offset in range(2):
            await asking.code(request(offset))
        answered: list[int] = []

        async def one(offset: int) -> None:
            assert await node.ask(encode(request(offset), 9), 9)
            answered.append(offset)

        await asyncio.gather(*(one(offset) for offset in range(2, 8)))
        assert answered == [2, 3, 4, 5, 6, 7]
        assert asking.committed() == 7

    run(scenario)


def test_what_could_not_be_written_changes_nothing() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            await asking.code(request(offset))
        before = asking.node.seen()
        asking.node.fail_next_write()
        ordinary = Asking(CommittingNode())
        await ordinary.code(request(1))
        ordinary.node.fail_next_write()
        assert await asking.code(request(9)) == await ordinary.code(request(9)) != ErrorCode.NONE
        assert asking.node.seen() == before
        assert await asking.code(request(10)) == ErrorCode.NONE
        assert (asking.repeats, asking.committed()) == (3, 10)

    run(scenario)


def test_a_fault_fails_its_request_and_the_next_one_goes_on() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for offset in range(3):
            await asking.code(request(offset))
        [prepared] = asking.node.repeated.known.values()
        assert prepared is not None
        prepared.replay, replay = failing, prepared.replay
        assert await asking.code(request(9)) == ErrorCode.UNKNOWN_SERVER_ERROR
        prepared.replay = replay
        assert await asking.code(request(10)) == ErrorCode.NONE
        assert asking.committed() == 10

    def failing(*_: int) -> None:
        raise ZeroDivisionError

    run(scenario)


def test_compressed_logs_are_written_the_ordinary_way() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode(codec="2"))
        for offset in range(4):
            assert await asking.code(request(offset)) == ErrorCode.NONE
        assert (asking.repeats, asking.committed()) == (0, 3)

    run(scenario)


def test_what_is_kept_is_bounded() -> None:
    async def scenario() -> None:
        asking = Asking(CommittingNode())
        for number in range(KEYS_MAX + 10):
            asking.node.repeated.note((9, b"%d" % number), None, asking.node.services.image, None, b"")  # type: ignore[arg-type]
        assert 0 < len(asking.node.repeated.known) <= KEYS_MAX
        asking.node.repeated.known.clear()
        for offset in range(3):
            await asking.code(request(offset, group_id="g" * KEY_BYTES_MAX))
        assert not asking.node.repeated.known

    run(scenario)
