"""The range assignor: balanced per topic, alike topics together, sticky."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings

from ottla.core.groups.assignor import AssignedMember
from ottla.core.groups.assignor_range import assign_ranges
from tests.unit.core.groups.assignments import check_whole, groups, loads, moved, with_has

T, U, V = UUID(int=1), UUID(int=2), UUID(int=3)


def members_of(count: int, *topics: UUID) -> dict[str, AssignedMember]:
    return {f"m{number}": AssignedMember(f"m{number}", frozenset(topics), {}) for number in range(count)}


@given(groups())
@settings(max_examples=80)
def test_each_topic_is_assigned_once_and_evenly(drawn: tuple[dict[str, AssignedMember], dict[UUID, int]]) -> None:
    members, counts = drawn
    shares = assign_ranges(members, counts)
    check_whole(members, counts, shares)
    for topic_id in counts:
        has = [len(shares[m].get(topic_id, ())) for m in members if topic_id in members[m].topics]
        assert not has or max(has) - min(has) <= 1


@given(groups())
@settings(max_examples=80)
def test_alike_topics_have_the_same_owners(drawn: tuple[dict[str, AssignedMember], dict[UUID, int]]) -> None:
    members, counts = drawn
    shares = assign_ranges(members, counts)
    for one in counts:
        for other in counts:
            subscribers = [{m for m in members if t in members[m].topics} for t in (one, other)]
            if counts[one] == counts[other] and subscribers[0] == subscribers[1]:
                assert all(share.get(one) == share.get(other) for share in shares.values())


@given(groups())
@settings(max_examples=80)
def test_nothing_moves_when_nothing_changes(drawn: tuple[dict[str, AssignedMember], dict[UUID, int]]) -> None:
    members, counts = drawn
    shares = assign_ranges(members, counts)
    assert moved(shares, assign_ranges(with_has(members, shares), counts)) == 0


def test_a_new_group_gets_ranges_and_the_first_the_larger_ones() -> None:
    shares = assign_ranges(members_of(3, T), {T: 8})
    assert [sorted(shares[m][T]) for m in ("m0", "m1", "m2")] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_static_members_are_ordered_by_their_instance_ids() -> None:
    members = {
        "z": AssignedMember("instance-1", frozenset({T}), {}),
        "a": AssignedMember("instance-2", frozenset({T}), {}),
    }
    assert sorted(assign_ranges(members, {T: 2})["z"][T]) == [0]


def test_a_member_that_leaves_moves_nothing_else() -> None:
    shares = assign_ranges(members_of(3, T, U), {T: 9, U: 9})
    rest = with_has({m: member for m, member in members_of(3, T, U).items() if m != "m1"}, shares)
    after = assign_ranges(rest, {T: 9, U: 9})
    assert moved({m: shares[m] for m in rest}, after) == 0
    assert sorted(loads(rest, after).values()) == [8, 10]


def test_topics_that_are_not_alike_are_assigned_apart() -> None:
    members = {**members_of(2, T, V), "m2": AssignedMember("m2", frozenset({T}), {})}
    shares = assign_ranges(members, {T: 3, V: 3})
    assert [sorted(shares[m].get(V, ())) for m in ("m0", "m1", "m2")] == [[0, 1], [2], []]
    assert [sorted(shares[m][T]) for m in ("m0", "m1", "m2")] == [[0], [1], [2]]
