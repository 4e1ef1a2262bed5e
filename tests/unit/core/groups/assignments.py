"""Groups to assign partitions in, and what every assignment has to be, for tests of assignors."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st

from ottla.core.groups.assignor import AssignedMember, Members, PartitionCounts, Shares
from ottla.core.groups.partition_map import map_of


@st.composite
def groups(draw: st.DrawFn, *, same: bool = False) -> tuple[dict[str, AssignedMember], dict[UUID, int]]:
    """Members with subscriptions and with what they have, which may be anything; and topics. Sets are drawn as bits of
    a number, which is what is drawn fastest."""
    counts = {UUID(int=n): count for n, count in enumerate(draw(st.lists(st.integers(0, 12), min_size=1, max_size=5)))}
    some_topics, some_numbers = st.integers(0, (1 << len(counts)) - 1), st.integers(0, (1 << 70) - 1)
    drawn = draw(st.lists(st.tuples(some_topics, some_numbers), min_size=1, max_size=7))
    members = {}
    for number, (topic_bits, has_bits) in enumerate(drawn):
        topics = [topic_id for n, topic_id in enumerate(counts) if (drawn[0][0] if same else topic_bits) >> n & 1]
        has = map_of((UUID(int=n), [m for m in range(14) if has_bits >> (n * 14 + m) & 1]) for n in range(5))
        members[f"m{number}"] = AssignedMember(f"m{number}", frozenset(topics), has)
    return members, counts


def check_whole(members: Members, counts: PartitionCounts, shares: Shares) -> None:
    """Each partition of a subscribed topic is assigned once, and to a subscriber."""
    assigned = [(t, n) for share in shares.values() for t, numbers in share.items() for n in numbers]
    subscribed = frozenset[UUID]().union(*(member.topics for member in members.values()))
    assert sorted(assigned) == sorted((t, n) for t in subscribed for n in range(counts[t]))
    for member_id, share in shares.items():
        assert members[member_id].topics.issuperset(t for t, numbers in share.items() if numbers)


def loads(members: Members, shares: Shares) -> dict[str, int]:
    """How many partitions each member has."""
    return {member_id: sum(map(len, shares.get(member_id, {}).values())) for member_id in members}


def with_has(members: Members, shares: Shares) -> dict[str, AssignedMember]:
    """The members with what an assignment gave them."""
    return {m: member._replace(has=map_of(shares.get(m, {}).items())) for m, member in members.items()}


def moved(before: Shares, after: Shares) -> int:
    """How many partitions were taken from a member."""
    return sum(
        len(set(numbers) - after.get(member_id, {}).get(topic_id, set()))
        for member_id, share in before.items()
        for topic_id, numbers in share.items()
    )
