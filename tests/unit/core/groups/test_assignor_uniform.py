"""The uniform assignor: everything assigned once, balanced, sticky, and to subscribers only."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.groups.assignor import AssignedMember, Members, PartitionCounts, Shares
from ottla.core.groups.assignor_uniform import assign_uniformly
from tests.unit.core.groups.assignments import check_whole, groups, loads, moved, with_has

T, U = UUID(int=1), UUID(int=2)


def alike(count: int, *topics: UUID) -> dict[str, AssignedMember]:
    return {f"m{number}": AssignedMember(f"m{number}", frozenset(topics), {}) for number in range(count)}


def again(members: Members, shares: Shares, counts: PartitionCounts) -> Shares:
    return assign_uniformly(with_has(members, shares), counts)


@given(groups())
@settings(max_examples=80)
def test_each_partition_has_one_subscriber_and_no_move_would_help(
    drawn: tuple[dict[str, AssignedMember], dict[UUID, int]],
) -> None:
    members, counts = drawn
    shares = assign_uniformly(members, counts)
    check_whole(members, counts, shares)
    load = loads(members, shares)
    for member_id, share in shares.items():
        for topic_id in share:
            takers = [other for other in members if topic_id in members[other].topics]
            assert load[member_id] - min(load[other] for other in takers) <= 1


@given(groups(same=True))
@settings(max_examples=80)
def test_members_with_the_same_topics_differ_by_one(
    drawn: tuple[dict[str, AssignedMember], dict[UUID, int]],
) -> None:
    members, counts = drawn
    load = loads(members, assign_uniformly(members, counts)).values()
    assert max(load) - min(load) <= 1


@given(groups())
@settings(max_examples=80)
def test_nothing_moves_when_nothing_changes(drawn: tuple[dict[str, AssignedMember], dict[UUID, int]]) -> None:
    members, counts = drawn
    shares = assign_uniformly(members, counts)
    assert moved(shares, again(members, shares, counts)) == 0


@given(groups(same=True), st.data())
@settings(max_examples=80)
def test_a_member_that_leaves_costs_its_own_partitions_only(
    drawn: tuple[dict[str, AssignedMember], dict[UUID, int]], data: st.DataObject
) -> None:
    members, counts = drawn
    shares = assign_uniformly(members, counts)
    gone = data.draw(st.sampled_from(sorted(members)))
    rest = {member_id: member for member_id, member in members.items() if member_id != gone}
    if rest:
        free = loads(members, shares)[gone]
        after = again(rest, {member_id: shares.get(member_id, {}) for member_id in rest}, counts)
        assert moved({m: s for m, s in shares.items() if m != gone}, after) == 0
        assert sum(loads(rest, after).values()) == sum(loads(members, shares).values())
        assert free >= 0


def test_a_member_that_joins_takes_no_more_than_its_share() -> None:
    members = alike(3, T)
    shares = assign_uniformly(members, {T: 30})
    after = again(alike(4, T), shares, {T: 30})
    assert sorted(loads(alike(4, T), after).values()) == [7, 7, 8, 8]
    assert moved(shares, after) == loads(alike(4, T), after)["m3"]


def test_new_partitions_move_no_old_ones() -> None:
    members = alike(3, T, U)
    shares = assign_uniformly(members, {T: 5, U: 4})
    after = again(members, shares, {T: 9, U: 4})
    assert moved(shares, after) == 0
    assert sorted(loads(members, after).values()) == [4, 4, 5]


def test_what_is_gone_or_claimed_twice_is_not_kept() -> None:
    has = {T: frozenset({0, 1, 7}), UUID(int=9): frozenset({0})}
    members = {name: AssignedMember(name, frozenset({T}), has) for name in ("a", "b")}
    shares = assign_uniformly(members, {T: 2})
    check_whole(members, {T: 2}, shares)
    assert loads(members, shares) == {"a": 1, "b": 1}


def test_different_subscriptions_even_out() -> None:
    members = {
        "both": AssignedMember("both", frozenset({T, U}), {T: frozenset(range(10))}),
        "only_t": AssignedMember("only_t", frozenset({T}), {}),
        "only_u": AssignedMember("only_u", frozenset({U}), {}),
    }
    shares = assign_uniformly(members, {T: 10, U: 2})
    check_whole(members, {T: 10, U: 2}, shares)
    assert loads(members, shares) == {"both": 5, "only_t": 5, "only_u": 2}


def test_members_without_topics_get_nothing() -> None:
    members = {**alike(1, T), "idle": AssignedMember("idle", frozenset(), {})}
    assert loads(members, assign_uniformly(members, {T: 3})) == {"m0": 3, "idle": 0}
    assert assign_uniformly({}, {}) == {}
    assert loads(alike(2), assign_uniformly(alike(2), {})) == {"m0": 0, "m1": 0}
