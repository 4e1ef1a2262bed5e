"""Giving leadership back to preferred leaders, the first replicas.

After a broker was away others lead its partitions, and go on when it comes back. Left alone that leaves it idle and
them overloaded. Placement has spread the preferred leaders evenly, so giving each its own is all that is needed.
"""

from __future__ import annotations

from ottla.core.controller.cluster_commands import BalanceLeaders
from ottla.core.controller.commands import Decision
from ottla.core.controller.context import Context
from ottla.core.controller.elections import ElectionKind, Electorate
from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.core.controller.records import NO_LEADER, Record


def balance_leaders(context: Context, command: BalanceLeaders) -> Decision[int]:
    """Elections for the brokers that miss more of their own partitions than allowed; at most `moves_max` at once."""
    electorate = Electorate(context)
    preferred_by: dict[int, int] = {}
    missed_by: dict[int, list[tuple[TopicImage, int]]] = {}
    for topic in context.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            preferred_by[preferred] = preferred_by.get(preferred, 0) + 1
            if partition.leader != preferred and _may_go_back(electorate, partition):
                missed_by.setdefault(preferred, []).append((topic, index))
    records: list[Record] = []
    for broker_id in sorted(missed_by):
        missed = missed_by[broker_id]
        if len(missed) * 100 <= preferred_by[broker_id] * command.imbalance_percentage_max:
            continue
        for topic, index in missed[: command.moves_max - len(records)]:
            record = electorate.change(topic, index, kind=ElectionKind.PREFERRED)
            records += [] if record is None else [record]
    return Decision(tuple(records), len(records))


def _may_go_back(electorate: Electorate, partition: PartitionImage) -> bool:
    """A partition without a leader waits for an election of another kind."""
    preferred = partition.replicas[0]
    return partition.leader != NO_LEADER and preferred in partition.isr and electorate.may_lead(partition, preferred)
