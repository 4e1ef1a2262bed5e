"""Kafka's range assignment: of each topic, every member that wants it gets a run of neighbouring partitions.

Members are served in the order of their ids, the first ones with one partition more where it does not come out even.
Topics with equally many partitions are thus shared out alike, which is what joins of topics rely on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.model.ids import TopicPartition


def assign_ranges(
    subscriptions: Mapping[str, Collection[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member, from the topics it wants. A topic without a count has no partitions."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        takers = [member for member in assigned if topic in subscriptions[member]]
        share, more = divmod(partition_counts.get(topic, 0), len(takers))
        start = 0
        for index, member in enumerate(takers):
            end = start + share + (index < more)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assigned
