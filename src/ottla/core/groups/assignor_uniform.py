"""The `uniform` assignor: members have as equal numbers of partitions as their subscriptions allow.

Where all members are subscribed to the same topics, numbers differ by one at most, and a member gives up a partition
only where it has more than its share. Where subscriptions differ, partitions are first kept or handed to the subscriber
that has least, and then moved one by one from a member to a subscriber of the same topic that has at least two fewer.
Each such move makes the sum of the squares of the numbers smaller, so this ends; then no single move would help.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from uuid import UUID

from ottla.core.groups.assignor import Members, PartitionCounts, Shares, in_order
from ottla.core.groups.partition_map import PartitionMap


def assign_uniformly(members: Members, partition_counts: PartitionCounts) -> Shares:
    if not members:
        return {}
    topics = next(iter(members.values())).topics
    if all(member.topics == topics for member in members.values()):
        return _same_subscription(members, partition_counts, topics)
    return _different_subscriptions(members, partition_counts)


def _same_subscription(members: Members, partition_counts: PartitionCounts, topics: frozenset[UUID]) -> Shares:
    free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in sorted(topics)}
    quota, extras = divmod(sum(map(len, free.values())), len(members))
    shares: Shares = {}
    kept: dict[str, int] = {}
    # Who has most gets a larger share first: nobody else would have to give up fewer.
    held = {member_id: sum(map(len, member.has.values())) for member_id, member in members.items()}
    for member_id in sorted(in_order(members), key=lambda member_id: -held[member_id]):
        share = shares[member_id] = {}
        limit = quota + (extras > 0)
        kept[member_id] = _keep(members[member_id].has, free, share, limit)
        if kept[member_id] > quota:
            extras -= 1
    left = [(topic_id, number) for topic_id, numbers in free.items() for number in sorted(numbers)]
    left.reverse()
    for member_id in in_order(members):
        limit = quota
        if extras and kept[member_id] <= quota:
            limit += 1
            extras -= 1
        share = shares[member_id]
        for _ in range(limit - kept[member_id]):
            topic_id, number = left.pop()
            share.setdefault(topic_id, set()).add(number)
    return shares


def _keep(has: PartitionMap, free: dict[UUID, set[int]], share: dict[UUID, set[int]], limit: int) -> int:
    """Move what a member has, as far as it is free, into its share up to a limit; how many those are."""
    count = 0
    for topic_id in sorted(has):
        there = free.get(topic_id)
        if there is None:
            continue
        numbers = sorted(has[topic_id] & there)[: limit - count]
        if numbers:
            share[topic_id] = set(numbers)
            there.difference_update(numbers)
            count += len(numbers)
    return count


def _different_subscriptions(members: Members, partition_counts: PartitionCounts) -> Shares:
    subscribers: dict[UUID, list[str]] = {}
    for member_id in in_order(members):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    shares: Shares = {member_id: {} for member_id in members}
    loads = dict.fromkeys(members, 0)
    # Topics that few can take come first: the others even out what they leave uneven.
    topics = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    for topic_id in topics:
        free = set(range(partition_counts[topic_id]))
        for member_id in subscribers[topic_id]:
            if kept := members[member_id].has.get(topic_id, frozenset()) & free:
                shares[member_id][topic_id] = set(kept)
                loads[member_id] += len(kept)
                free -= kept
        _hand_out(topic_id, sorted(free), subscribers[topic_id], shares, loads)
    moving = True
    while moving:
        moving = False
        for topic_id in topics:
            moving |= _even_out(topic_id, subscribers[topic_id], shares, loads)
    return shares


def _hand_out(
    topic_id: UUID, numbers: list[int], subscribers: list[str], shares: Shares, loads: dict[str, int]
) -> None:
    """Give each partition to the subscriber that has least."""
    if not numbers:
        return
    heap = [(loads[member_id], place, member_id) for place, member_id in enumerate(subscribers)]
    heapify(heap)
    for number in numbers:
        load, place, member_id = heap[0]
        shares[member_id].setdefault(topic_id, set()).add(number)
        loads[member_id] = load + 1
        heapreplace(heap, (load + 1, place, member_id))


def _even_out(topic_id: UUID, subscribers: list[str], shares: Shares, loads: dict[str, int]) -> bool:
    """Move partitions of one topic to subscribers with at least two fewer; whether there was one to move.

    The heaps are right at the beginning and may be a little outdated later, so the last word has a call that moves
    nothing.
    """
    givers = [(-loads[m], place, m) for place, m in enumerate(subscribers) if topic_id in shares[m]]
    takers = [(loads[m], place, m) for place, m in enumerate(subscribers)]
    heapify(givers)
    heapify(takers)
    moved = False
    while givers:
        _, giver_place, giver = givers[0]
        load, place, taker = takers[0]
        if loads[taker] != load:
            heapreplace(takers, (loads[taker], place, taker))
            continue
        if loads[giver] - load < 2:
            break
        numbers = shares[giver][topic_id]
        shares[taker].setdefault(topic_id, set()).add(numbers.pop())
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
        heapreplace(takers, (load + 1, place, taker))
        if numbers:
            heapreplace(givers, (-loads[giver], giver_place, giver))
        else:
            del shares[giver][topic_id]
            heappop(givers)
    return moved
