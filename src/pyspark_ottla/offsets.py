"""Where partitions begin and end for a query, and how a range of offsets is cut into tasks.

Offsets travel as Spark's Kafka source writes them, `{"topic":{"0":23,"1":42}}`, so a checkpoint of one source is a
checkpoint of the other. Spark compares them as text: topics are sorted by name, partitions by number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.offsets import EARLIEST, LATEST, Isolation, list_offsets
from ottla.model.ids import TopicPartition
from pyspark_ottla.options import Edge, Offsets, OptionError, Position, SourceOptions, Subscription

PartitionOffsets = dict[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]


class OffsetRange(NamedTuple):
    """The records of a partition from `start` up to, and without, `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """As Spark stores it."""
    topics: OffsetJson = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def from_json(json: Any) -> PartitionOffsets:
    """What Spark stored. A checkpoint of another kind of source is refused."""
    if not isinstance(json, Mapping) or not all(isinstance(partitions, Mapping) for partitions in json.values()):
        raise OptionError(
            f"the checkpoint's offset is {json!r}, which is none of topics: it is the checkpoint of another query, or "
            "the order of the query's sources has changed; give it a checkpoint of its own"
        )
    return {
        TopicPartition(topic, int(index)): int(offset)
        for topic, partitions in json.items()
        for index, offset in partitions.items()
    }


def subscribed_partitions(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """The partitions that a query reads, as they are now. NotFoundError names a topic that is not there."""
    if subscription.assigned:
        topics = sorted({partition.topic for partition in subscription.assigned})
        counts = {name: len(cluster.topic(name).partitions) for name in topics}
        for partition in subscription.assigned:
            if partition.partition >= counts[partition.topic]:
                raise OptionError(
                    f"option 'assign' names {partition}, but the topic has {counts[partition.topic]} partitions"
                )
        return list(subscription.assigned)
    if subscription.pattern is None:
        names: Iterable[str] = subscription.topics
        cluster.retry(lambda: cluster.refresh(subscription.topics))
    else:
        cluster.retry(lambda: cluster.refresh(None))
        # Internal topics are for their owners, as in Kafka's consumers.
        names = [
            name
            for name, topic in cluster.metadata.topics.items()
            if not topic.internal and re.fullmatch(subscription.pattern, name)
        ]
    return [
        TopicPartition(name, index) for name in sorted(names) for index in range(len(cluster.topic(name).partitions))
    ]


def resolve(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    position: Position,
    options: SourceOptions,
    *,
    is_start: bool,
) -> PartitionOffsets:
    """The offset of each partition that a position stands for."""
    if isinstance(position, Edge):
        asked = dict.fromkeys(partitions, position.value)
        return _listed(cluster, asked, options.isolation)
    if isinstance(position, Offsets):
        _check_all_named(partitions, position.by_partition)
        given = {partition: position.by_partition[partition] for partition in partitions}
        asked = {partition: offset for partition, offset in given.items() if offset in (EARLIEST, LATEST)}
        return {**given, **_listed(cluster, asked, options.isolation)}
    if position.by_partition is None:
        times = dict.fromkeys(partitions, position.everywhere)
    else:
        _check_all_named(partitions, position.by_partition, times=True)
        times = {partition: position.by_partition[partition] for partition in partitions}
    return _at_times(cluster, times, options, is_start=is_start)


def _at_times(
    cluster: Cluster, times: Mapping[TopicPartition, int], options: SourceOptions, *, is_start: bool
) -> PartitionOffsets:
    found = _listed(cluster, times, options.isolation)
    unmatched = [partition for partition, offset in found.items() if offset < 0]
    if unmatched and is_start and not options.latest_if_no_match:
        partition = unmatched[0]
        raise OptionError(
            f"No offset matched from request of topic-partition {partition} and timestamp {times[partition]}."
        )
    return {**found, **_listed(cluster, dict.fromkeys(unmatched, LATEST), options.isolation)}


def _listed(cluster: Cluster, asked: Mapping[TopicPartition, int], isolation: Isolation) -> PartitionOffsets:
    if not asked:
        return {}
    found = list_offsets(cluster, asked, isolation)
    return {partition: found[partition].offset for partition in asked}


def latest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition], isolation: Isolation) -> PartitionOffsets:
    """Where each partition ends for a reader of this isolation."""
    return _listed(cluster, dict.fromkeys(partitions, LATEST), isolation)


def earliest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition], isolation: Isolation) -> PartitionOffsets:
    """Where each partition begins."""
    return _listed(cluster, dict.fromkeys(partitions, EARLIEST), isolation)


def _check_all_named(
    partitions: Sequence[TopicPartition], named: Mapping[TopicPartition, int], *, times: bool = False
) -> None:
    if set(partitions) == named.keys():
        return
    what = "starting/endingOffsetsByTimestamp" if times else "startingOffsets"
    raise OptionError(
        f"If {what} contains specific offsets, you must specify all TopicPartitions.\n"
        "Use -1 for latest, -2 for earliest.\n"
        f"Specified: {_shown(named)} Assigned: {_shown(partitions)}"
    )


def _shown(partitions: Iterable[TopicPartition]) -> str:
    return "{" + ", ".join(str(partition) for partition in sorted(partitions)) + "}"


# -- how much of it, and in how many tasks


def within_limit(start: Mapping[TopicPartition, int], end: PartitionOffsets, rows_max: int) -> PartitionOffsets:
    """The end that lets through about `rows_max` offsets, shared out by what each partition has.

    A partition that has anything gets at least one.
    """
    sizes = {partition: max(offset - start.get(partition, offset), 0) for partition, offset in end.items()}
    total = sum(sizes.values())
    if total <= rows_max:
        return end
    limited = {}
    for partition, offset in end.items():
        share = rows_max * sizes[partition] // total
        limited[partition] = min(offset, offset - sizes[partition] + max(share, 1)) if sizes[partition] else offset
    return limited


def cut(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """The ranges that have something, cut into parts of at most `records_max` and so that there are about
    `min_partitions` of them: large ranges are cut, small ones are left alone."""
    kept = [offset_range for offset_range in ranges if offset_range.size > 0]
    if records_max is not None:
        kept = [part for whole in kept for part in _cut(whole, -(-whole.size // records_max))]
    if min_partitions is None or len(kept) >= min_partitions:
        return kept
    total = sum(offset_range.size for offset_range in kept)
    small = [offset_range for offset_range in kept if _share(offset_range.size, total, min_partitions) == 1]
    rest = total - sum(offset_range.size for offset_range in small)
    parts_of_large = max(min_partitions - len(small), 1)
    chosen: list[OffsetRange] = []
    for offset_range in kept:
        is_small = _share(offset_range.size, total, min_partitions) == 1
        chosen += _cut(offset_range, 1 if is_small else _share(offset_range.size, rest, parts_of_large))
    return chosen


def _share(size: int, total: int, parts: int) -> int:
    return max(int(size / total * parts + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    pieces = [OffsetRange(whole.partition, first, last) for first, last in pairwise(edges)]
    return [piece for piece in pieces if piece.size]
