"""Groups as administrators see them."""

from __future__ import annotations

import pytest

from ottla.core.groups.listing import DeleteGroup, DescribeGroup, ListedGroup, ListGroups
from ottla.core.groups.records import ClassicGroupRecord, OffsetRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.coordinator import Coordinator, join, offers


def commit(c: Coordinator, *partitions: int) -> None:
    for partition in partitions:
        record = OffsetRecord("g", "t", partition, 1)
        c.log.append((record, -1))
        c.shard.replay(record, -1)


@pytest.mark.parametrize(
    ("states", "kinds", "found"),
    [
        ((), (), "eg"),
        (("stable",), (), "g"),
        (("stable", "empty"), (), "eg"),
        (("dead",), (), ""),
        ((), ("classic",), "eg"),
        ((), ("consumer",), ""),
        (("empty",), ("classic", "consumer"), "e"),
    ],
)
def test_groups_are_listed_by_state_and_kind(states: tuple[str, ...], kinds: tuple[str, ...], found: str) -> None:
    c = Coordinator()
    c.stable(1)
    c.ask(join(group_id="e"))
    groups = c.ask(ListGroups(states=frozenset(states), kinds=frozenset(kinds)))
    assert {group.group_id for group in groups} == set(found)
    assert ListedGroup("g", "consumer", "Stable", "classic") in groups or "g" not in found


def test_a_stable_group_is_described_with_all_it_has() -> None:
    c = Coordinator()
    member_id = c.stable(1, protocols=offers("range", metadata=b"m"))[0]
    assert c.ask(DescribeGroup("g")) == (
        "g",
        "Stable",
        "consumer",
        "range",
        ((member_id, None, "c", "/127.0.0.1", b"m", member_id.encode()),),
    )


def test_a_group_that_moves_is_described_without_metadata() -> None:
    c = Coordinator()
    c.stable(1, protocols=offers("range", metadata=b"m"))
    c.new_member()
    described = c.ask(DescribeGroup("g"))
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert [member.metadata for member in described.members] == [b"", b""]


def test_a_group_that_is_not_there() -> None:
    c = Coordinator()
    assert c.code(DescribeGroup("g")) is c.code(DeleteGroup("g")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_stays() -> None:
    c = Coordinator()
    c.stable(1)
    assert c.code(DeleteGroup("g")) is ErrorCode.NON_EMPTY_GROUP


def test_a_group_goes_with_its_offsets() -> None:
    c = Coordinator()
    c.leave(*c.stable(1))
    commit(c, 0, 1)
    before = len(c.log)
    assert c.ask(DeleteGroup("g")) is True
    written = [record for record, _ in c.log[before:]]
    assert written[:2] == [OffsetRecord("g", "t", partition, -1) for partition in (0, 1)]
    assert written[2:] == [ClassicGroupRecord(group_id="g", gone=True)]
    assert not c.shard.state.groups
    assert not c.shard.state.offsets.has_any("g")
    c.reload()
    assert not c.shard.state.groups


def test_a_group_that_only_has_offsets_can_be_deleted() -> None:
    c = Coordinator()
    commit(c, 0)
    assert c.ask(ListGroups()) == [ListedGroup("g", "", "Empty", "classic")]
    assert c.ask(DeleteGroup("g")) is True
    assert not c.shard.state.groups


def test_very_many_offsets_go_in_several_steps() -> None:
    c = Coordinator({"message.max.bytes": "10000"})
    commit(c, *range(20))
    steps = []
    while "g" in c.shard.state.groups:
        before = len(c.log)
        steps.append(c.ask(DeleteGroup("g")))
        assert len(c.log) - before <= 10
    assert steps == [False, False, True]
