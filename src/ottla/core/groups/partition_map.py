"""Partitions by topic: as records have them (sorted tuples), and as assignments are worked with (maps of sets)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from ottla.core.groups.records import Partitions

PartitionMap: TypeAlias = Mapping[UUID, frozenset[int]]
"""Never changed once made; a topic without partitions is not in it."""

NO_PARTITIONS: Final[PartitionMap] = MappingProxyType({})
NONE_OF_TOPIC: Final[frozenset[int]] = frozenset()


def map_of(partitions: Iterable[tuple[UUID, Iterable[int]]]) -> PartitionMap:
    """A map out of pairs in any order; a topic may come twice."""
    found: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in partitions:
        if together := found.get(topic_id, NONE_OF_TOPIC).union(numbers):
            found[topic_id] = together
    return found


def sorted_partitions(partitions: PartitionMap) -> Partitions:
    """As records and answers have them."""
    return tuple((topic_id, tuple(sorted(partitions[topic_id]))) for topic_id in sorted(partitions))


def is_subset(part: PartitionMap, whole: PartitionMap) -> bool:
    return all(numbers <= whole.get(topic_id, NONE_OF_TOPIC) for topic_id, numbers in part.items())


def overlap(one: PartitionMap, other: PartitionMap) -> bool:
    """Whether a partition is in both."""
    return any(not numbers.isdisjoint(other.get(topic_id, NONE_OF_TOPIC)) for topic_id, numbers in one.items())


def union(one: PartitionMap, other: PartitionMap) -> PartitionMap:
    """What is in one of them or in both."""
    if not other:
        return one
    return map_of((*one.items(), *other.items()))


def only_topics(partitions: PartitionMap, topic_ids: frozenset[UUID]) -> PartitionMap:
    """What belongs to these topics."""
    if topic_ids.issuperset(partitions):
        return partitions
    return {topic_id: numbers for topic_id, numbers in partitions.items() if topic_id in topic_ids}
