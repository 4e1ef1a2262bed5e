"""The `range` assignor: topic by topic, and members have the same partition numbers of topics that are alike.

Topics are alike when they have the same subscribers and as many partitions; then number 7 of all of them has one owner,
so that what is keyed alike meets in one member. Of each topic members have equal numbers of partitions, give or take
one, those that come first in order having the larger ones. A new group gets ranges; later members keep the numbers
that they have as far as their share allows.
"""

from __future__ import annotations

from uuid import UUID

from ottla.core.groups.assignor import Members, PartitionCounts, Shares, in_order


def assign_ranges(members: Members, partition_counts: PartitionCounts) -> Shares:
    subscribers: dict[UUID, list[str]] = {}
    for member_id in in_order(members):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    alike: dict[tuple[tuple[str, ...], int], list[UUID]] = {}
    for topic_id in sorted(subscribers):
        alike.setdefault((tuple(subscribers[topic_id]), partition_counts[topic_id]), []).append(topic_id)
    shares: Shares = {member_id: {} for member_id in members}
    for (takers, count), topics in alike.items():
        for member_id, numbers in _numbers(members, takers, count, topics).items():
            for topic_id in topics:
                shares[member_id][topic_id] = set(numbers)
    return shares


def _numbers(members: Members, takers: tuple[str, ...], count: int, topics: list[UUID]) -> dict[str, list[int]]:
    """Which numbers each member has of topics that are alike; only members that have some."""
    quota, extras = divmod(count, len(takers))
    free = set(range(count))
    kept: dict[str, list[int]] = {}
    had = {member_id: _had(members, member_id, topics, count) for member_id in takers}
    for member_id in sorted(takers, key=lambda member_id: -len(had[member_id])):
        kept[member_id] = sorted(had[member_id] & free)[: quota + (extras > 0)]
        extras -= len(kept[member_id]) > quota
        free.difference_update(kept[member_id])
    left = sorted(free, reverse=True)
    for member_id in takers:
        numbers = kept[member_id]
        limit = quota
        if extras and len(numbers) <= quota:
            limit += 1
            extras -= 1
        numbers += [left.pop() for _ in range(limit - len(numbers))]
    return {member_id: numbers for member_id, numbers in kept.items() if numbers}


def _had(members: Members, member_id: str, topics: list[UUID], count: int) -> set[int]:
    """The numbers that a member has of one of these topics or of several."""
    has = members[member_id].has
    return {number for topic_id in topics for number in has.get(topic_id, ()) if number < count}
