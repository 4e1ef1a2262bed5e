"""Each partition to one member, the shares of a topic as even as they can be."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.range_assignment import assign_ranges
from ottla.model.ids import TopicPartition

TOPICS = st.sampled_from("abcd")


@given(
    subscriptions=st.dictionaries(st.text("mn", min_size=1, max_size=4), st.sets(TOPICS), max_size=6),
    counts=st.dictionaries(TOPICS, st.integers(0, 12)),
)
def test_every_wanted_partition_has_one_owner_that_wants_it(
    subscriptions: dict[str, set[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(subscriptions, counts)
    assert assigned.keys() == subscriptions.keys()
    owned = Counter(partition for partitions in assigned.values() for partition in partitions)
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert owned == Counter(TopicPartition(topic, n) for topic in wanted for n in range(counts.get(topic, 0)))
    for topic in wanted:
        shares = [
            [partition.partition for partition in assigned[member] if partition.topic == topic]
            for member in sorted(subscriptions)
            if topic in subscriptions[member]
        ]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert [number for share in shares for number in share] == list(range(counts.get(topic, 0)))
    for member, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= subscriptions[member]


def test_the_first_members_get_the_odd_ones() -> None:
    assigned = assign_ranges({"b": ["t"], "a": ["t"]}, {"t": 3})
    assert [partition.partition for partition in assigned["a"]] == [0, 1]
