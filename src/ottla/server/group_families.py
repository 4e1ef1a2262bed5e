"""Metrics of consumer groups by the names of kafka_exporter: members, committed offsets, and lag.

A group is reported by its coordinator, so a sum over all brokers counts it once. Lag needs the end of the partition:
that of a log that nobody has touched since a clean start is where it was then, and no log is opened for a page. Lag is
left out for a partition of which this broker has no replica; there it is `kafka_topic_partition_current_offset`, which
its replicas report, less `kafka_consumergroup_current_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ottla.server.metric_text import LINES_PER_PIECE, Family, escaped, joined
from ottla.server.readable_end import readable_end

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.core.groups.shard import GroupShard
    from ottla.core.groups.table import GroupState
    from ottla.runtime.partitions import HostedTopic

OFFSETS_MAX: Final = 50_000
"""Committed offsets of a broker that are still shown one by one. More of them would make a page of which the most part
is this, and `ottla group describe` says it of one group."""

MEMBERS: Final = Family("kafka_consumergroup_members", "gauge", "Members of the group.")
OFFSET: Final = Family("kafka_consumergroup_current_offset", "gauge", "The offset that the group has committed.")
OFFSET_SUM: Final = Family("kafka_consumergroup_current_offset_sum", "gauge", "The same over the topic's partitions.")
LAG: Final = Family("kafka_consumergroup_lag", "gauge", "Offsets between what the group has committed and the end.")
LAG_SUM: Final = Family("kafka_consumergroup_lag_sum", "gauge", "The same over the topic's partitions.")


class Progress(NamedTuple):
    """Some partitions of a topic that a group has committed: index, offset, and lag where it is known."""

    labels: str
    partitions: list[tuple[int, int, int | None]]


def group_families(services: Services) -> Iterator[str]:
    """Pieces of the page; an empty one only gives the loop a chance to turn."""
    states = [cast("GroupShard", coordinator.shard).state for coordinator in services.groups.active.values()]
    yield MEMBERS.header()
    for state in states:
        yield from joined(
            f'{MEMBERS.name}{{consumergroup="{escaped(group_id)}"}} {len(group.members)}\n'
            for group_id, group in list(state.groups.items())
        )
    if sum(state.offsets.count for state in states) > OFFSETS_MAX:
        return
    found: list[Progress] = []
    for state in states:
        for group_id in list(state.groups):
            for progress in _progress(services, state, group_id):
                found.append(progress)
                yield ""
    for family, lines in (
        (OFFSET, _each(OFFSET.name, [(row.labels, _offsets(row)) for row in found])),
        (OFFSET_SUM, _sums(OFFSET_SUM.name, [(row.labels, _offsets(row)) for row in found])),
        (LAG, _each(LAG.name, [(row.labels, _lags(row)) for row in found])),
        (LAG_SUM, _sums(LAG_SUM.name, [(row.labels, _lags(row)) for row in found])),
    ):
        yield family.header()
        yield from joined(lines)


def _progress(services: Services, state: GroupState, group_id: str) -> Iterator[Progress]:
    unpack = state.offsets.packed.unpack
    for topic, packed in list(state.offsets.topics(group_id).items()):
        labels = f'{{consumergroup="{escaped(group_id)}",topic="{escaped(topic)}"'
        rest = iter(list(packed.items()))
        while piece := list(islice(rest, LINES_PER_PIECE)):
            hosted = services.partitions.find(topic)
            offsets = [(index, unpack(leaf).offset) for index, leaf in piece]
            yield Progress(labels, [(index, at, _lag(services, hosted, index, at)) for index, at in offsets])


def _lag(services: Services, topic: HostedTopic | None, index: int, offset: int) -> int | None:
    partition = topic.partitions[index] if topic is not None and index < len(topic.partitions) else None
    end = None if partition is None else readable_end(services, partition)
    return None if end is None else max(end - offset, 0)


def _offsets(row: Progress) -> list[tuple[int, int]]:
    return [(index, offset) for index, offset, _ in row.partitions]


def _lags(row: Progress) -> list[tuple[int, int]]:
    return [(index, lag) for index, _, lag in row.partitions if lag is not None]


def _each(name: str, rows: list[tuple[str, list[tuple[int, int]]]]) -> Iterator[str]:
    for labels, values in rows:
        for index, value in values:
            yield f'{name}{labels},partition="{index}"}} {value}\n'


def _sums(name: str, rows: list[tuple[str, list[tuple[int, int]]]]) -> Iterator[str]:
    sums: dict[str, int] = {}
    for labels, values in rows:
        if values:
            sums[labels] = sums.get(labels, 0) + sum(value for _, value in values)
    for labels, value in sums.items():
        yield f"{name}{labels}}} {value}\n"
