"""OffsetCommit and TxnOffsetCommit: who may, what is recorded, and what is refused by itself."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.core.groups.classic_group import ClassicGroup, ClassicState
from ottla.core.groups.classic_member import ClassicMember
from ottla.core.groups.offset_commands import CommitOffsets, CommitTransactionalOffsets, NewOffset
from ottla.core.groups.offsets import DECISIONS
from ottla.core.groups.records import (
    ClassicGroupRecord,
    ClassicMemberRecord,
    OffsetRecord,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import ZERO_UUID
from tests.unit.core.groups.offset_coordinator import REPLAYS, START_MS, TOPIC_ID, OffsetCoordinator


def new(offset: int = 5, metadata: str | None = None, partition: int = 0) -> NewOffset:
    return NewOffset("t", TOPIC_ID, partition, offset, 3, metadata)


def member(member_id: str = "m", instance: str | None = None) -> ClassicMemberRecord:
    return ClassicMemberRecord(member_id, instance, "c", "h", 60_000, 10_000, b"", b"")


def with_member(c: OffsetCoordinator, *, instance: str | None = None, generation: int = 4) -> None:
    """Group g is stable, with one member."""
    record = ClassicGroupRecord(
        group_id="g",
        protocol_type="other",
        generation=generation,
        protocol="p",
        leader="m",
        members=(member(instance=instance),),
    )
    REPLAYS[ClassicGroupRecord](c.state, record, -1)
    assert isinstance(c.group().members["m"], ClassicMember)


def test_a_simple_consumer_creates_an_empty_group() -> None:
    c = OffsetCoordinator()
    assert c.commit(5) == [ErrorCode.NONE]
    assert c.log == [(OffsetRecord("g", "t", 0, 5, 3, "note", START_MS, -1, TOPIC_ID), -1)]
    assert c.group().state is ClassicState.EMPTY
    assert c.group().protocol_type == ""
    assert c.fetch() == (0, 5, 3, "note", ErrorCode.NONE)


def test_the_empty_group_id_is_one() -> None:
    c = OffsetCoordinator()
    assert c.commit(5, group_id="") == [ErrorCode.NONE]
    assert c.fetch(group_id="").offset == 5


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_an_unknown_group_is_refused(version: int, code: ErrorCode) -> None:
    c = OffsetCoordinator()
    command = CommitOffsets(
        group_id="g", offsets=[new()], member_id="m", generation_id_or_member_epoch=0, version=version
    )
    assert c.code(command) is code
    assert not c.state.groups


def test_metadata_that_is_too_long_is_refused_by_itself() -> None:
    c = OffsetCoordinator({"offset.metadata.max.bytes": "4"})
    offsets = [new(1, "12345", 0), new(2, "1234", 1), new(3, None, 2), new(4, "\U0001f600" * 3, 3)]
    codes = c.ask(CommitOffsets(group_id="g", offsets=offsets))
    large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes == [large, ErrorCode.NONE, ErrorCode.NONE, large]
    assert [c.fetch(partition=index).offset for index in range(4)] == [-1, 2, 3, -1]
    assert c.fetch(partition=2).metadata == ""


def test_without_anything_to_record_there_is_no_group() -> None:
    c = OffsetCoordinator({"offset.metadata.max.bytes": "0"})
    assert c.commit(1) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert not c.log
    assert not c.state.groups


def test_an_old_client_says_how_long_an_offset_is_kept() -> None:
    c = OffsetCoordinator()
    c.commit(5, retention_time_ms=1000, version=4)
    # The record's format has no room for an id and an epoch, so memory must not have them either.
    assert c.log == [(OffsetRecord("g", "t", 0, 5, -1, "note", START_MS, START_MS + 1000, ZERO_UUID), -1)]


def test_members_commit_in_their_generation() -> None:
    c = OffsetCoordinator()
    with_member(c)

    def code(member_id: str, generation: int, **more: Any) -> ErrorCode:
        return c.code(
            CommitOffsets(
                group_id="g", offsets=[new()], member_id=member_id, generation_id_or_member_epoch=generation, **more
            )
        )

    assert code("m", 4) is ErrorCode.NONE
    assert code("m", 3) is ErrorCode.ILLEGAL_GENERATION
    assert code("x", 4) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code("m", 4, group_instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    c.group().state = ClassicState.COMPLETING_REBALANCE
    assert code("m", 4) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    c = OffsetCoordinator()
    with_member(c, instance="i")
    command = CommitOffsets(
        group_id="g", offsets=[new()], member_id="old", group_instance_id="i", generation_id_or_member_epoch=4
    )
    assert c.code(command) is ErrorCode.FENCED_INSTANCE_ID


def test_a_commit_keeps_a_classic_member_alive_and_a_refused_one_does_not() -> None:
    c = OffsetCoordinator()
    with_member(c)
    before = c.group().members["m"].deadline_ms
    c.now_ms += 5000
    stale = CommitOffsets(group_id="g", offsets=[new()], member_id="m", generation_id_or_member_epoch=3)
    assert c.code(stale) is ErrorCode.ILLEGAL_GENERATION
    assert c.group().members["m"].deadline_ms == before
    c.commit(5, member_id="m", generation_id_or_member_epoch=4)
    assert c.group().members["m"].deadline_ms == c.now_ms + 10_000


def test_a_group_id_that_fits_into_no_key_is_refused() -> None:
    c = OffsetCoordinator()
    assert c.code(CommitOffsets(group_id="x" * 32_767, offsets=[new()])) is ErrorCode.NONE
    assert c.code(CommitOffsets(group_id="x" * 32_768, offsets=[new()])) is ErrorCode.INVALID_GROUP_ID
    assert c.code(CommitOffsets(group_id="\u20ac" * 11_000, offsets=[new()])) is ErrorCode.INVALID_GROUP_ID


def test_transactional_offsets_wait_for_their_marker() -> None:
    c = OffsetCoordinator()
    c.commit_in(9, 5)
    assert c.log == [(OffsetRecord("g", "t", 0, 5, -1, "", START_MS, -1, TOPIC_ID), 9)]
    assert "g" in c.state.groups
    assert c.fetch().offset == -1
    c.end(9, committed=True)
    assert c.fetch().offset == 5
    c.commit_in(9, 8)
    c.end(9, committed=False)
    assert c.fetch().offset == 5


def test_transactional_commits_carry_their_producer() -> None:
    c = OffsetCoordinator()
    command = CommitTransactionalOffsets(group_id="g", offsets=[new()], producer_id=9, producer_epoch=2)
    outcome = DECISIONS[CommitTransactionalOffsets](c.state, command, 1, c.now_ms)
    assert (outcome.producer_id, outcome.producer_epoch) == (9, 2)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 0), (9, -1)])
def test_without_a_producer_there_is_no_transaction(producer_id: int, producer_epoch: int) -> None:
    c = OffsetCoordinator()
    command = CommitTransactionalOffsets(
        group_id="g", offsets=[new()], producer_id=producer_id, producer_epoch=producer_epoch
    )
    assert c.code(command) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_members_commit_in_their_generation_in_transactions_too() -> None:
    c = OffsetCoordinator()

    def code(**more: Any) -> ErrorCode:
        return c.code(
            CommitTransactionalOffsets(group_id="g", offsets=[new()], producer_id=9, producer_epoch=0, **more)
        )

    assert code(member_id="m", generation_id=4) is ErrorCode.ILLEGAL_GENERATION
    with_member(c)
    assert code(member_id="m", generation_id=4) is ErrorCode.NONE
    assert code(member_id="m", generation_id=3) is ErrorCode.ILLEGAL_GENERATION
    assert code(member_id="x", generation_id=4) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(version=2) is ErrorCode.NONE


class Stale(ClassicGroup):
    """A group in which everybody is behind."""

    def check_offset_commit(self, *_: Any, **__: Any) -> None:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH, "behind")


def test_a_stale_epoch_is_an_illegal_generation_to_producers() -> None:
    c = OffsetCoordinator()
    c.state.groups["g"] = Stale("g")
    offsets = [new()]
    assert c.code(CommitOffsets(group_id="g", offsets=offsets)) is ErrorCode.STALE_MEMBER_EPOCH
    command = CommitTransactionalOffsets(group_id="g", offsets=offsets, producer_id=9, producer_epoch=0)
    assert c.code(command) is ErrorCode.ILLEGAL_GENERATION


def test_tombstones_create_no_group() -> None:
    c = OffsetCoordinator()
    assert c.commit(-1) == [ErrorCode.NONE]
    assert not c.state.groups
    assert c.fetch().offset == -1
