"""What is asked again comes to what asking for the first time would come to."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.core.groups.offset_commands import CommitOffsets, NewOffset
from ottla.core.groups.records import OffsetRecord
from ottla.core.groups.repeated_commit import RepeatedCommit
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.groups.offset_coordinator import TOPIC_ID, OffsetCoordinator, dump

NEW = NewOffset("t", TOPIC_ID, 0, 1)


def repeated(c: OffsetCoordinator, **who: Any) -> RepeatedCommit:
    return RepeatedCommit(c.state, CommitOffsets("g", [NEW], **who), NEW)


def commit(c: OffsetCoordinator, command: RepeatedCommit, offset: int) -> None:
    assert command.decide(c.now_ms)
    c.log.append((OffsetRecord("g", "t", 0, offset, 4, "", c.now_ms, -1, TOPIC_ID), -1))
    command.replay(offset, 4, c.now_ms)


def test_state_and_log_agree() -> None:
    c = OffsetCoordinator()
    c.commit(1, topic="u")
    command = repeated(c)
    for offset in (5, 3, 9):
        c.now_ms += 1
        commit(c, command, offset)
    before = dump(c.state.offsets)
    assert c.state.offsets.count == 2
    c.reload()
    assert dump(c.state.offsets) == before


def test_a_group_that_is_not_there_is_for_others_to_judge() -> None:
    c = OffsetCoordinator()
    command = repeated(c)
    assert not command.decide(c.now_ms)
    c.commit(1)
    assert command.decide(c.now_ms)
    del c.state.groups["g"]
    assert not command.decide(c.now_ms)


def test_a_stranger_is_refused() -> None:
    c = OffsetCoordinator()
    c.commit(1)
    with pytest.raises(ApiError) as refused:
        repeated(c, member_id="m", generation_id_or_member_epoch=1).decide(c.now_ms)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_offset_that_was_removed_comes_back_into_the_store() -> None:
    c = OffsetCoordinator()
    c.commit(1)
    command = repeated(c)
    for offset in (2, 3):
        commit(c, command, offset)
    for others in ((), (1,)):
        for partition in others:
            c.commit(7, partition=partition)
        c.commit(-1)
        assert c.state.offsets.get("g", "t", 0) is None
        commit(c, command, 8)
        found = c.state.offsets.get("g", "t", 0)
        assert found is not None
        assert found.offset == 8
        assert c.state.offsets.count == 1 + len(others)


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_transaction_holds_does_not_come_after_it(committed: bool) -> None:
    c = OffsetCoordinator()
    c.commit(1)
    command = repeated(c)
    commit(c, command, 2)
    c.commit_in(5, 50)
    commit(c, command, 3)
    c.end(5, committed=committed)
    found = c.state.offsets.get("g", "t", 0)
    assert found is not None
    assert found.offset == 3
    commit(c, command, 4)
    before = dump(c.state.offsets)
    c.reload()
    assert dump(c.state.offsets) == before
