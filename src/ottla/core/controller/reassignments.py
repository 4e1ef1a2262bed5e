"""Moving the replicas of partitions to other brokers.

Theory of operation. A move has two records. The first names every broker that has or is to have a replica, those that
are to stay first and in their new order, with `adding` and `removing` beside it: new replicas begin to fetch while
the old ones go on. When all that are to stay are in the ISR, whichever change brings that about, `finished` says what
the partition is then: the second record takes the leaving replicas out. Where nothing has to be fetched, as when the
order changes, both are one record.

`adding` is what the partition did not have before the first of the moves that followed one another, and `removing` is
what it shall not have in the end; so stopping the last of several moves leads back to where the first one began. Only
a broker that one move added and the next one takes away again is in both.

An editor must keep true: a leaving replica stays in the ISR until all that stay are in it, for it may be the only one
that has everything that was acknowledged; and a replica is never put into the ISR here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.core.controller.assignments import check_replicas
from ottla.core.controller.cluster_commands import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    ReassignedPartition,
)
from ottla.core.controller.commands import DONE, Decision, Outcome
from ottla.core.controller.context import Context
from ottla.core.controller.elections import Electorate
from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.core.controller.records import NO_LEADER, PartitionChangeRecord, Record
from ottla.core.controller.validation import PARTITIONS_PER_REQUEST_MAX
from ottla.model.configs.resolve import resolve_topic
from ottla.model.errors import ApiError, ErrorCode

_TWICE: Final = Outcome(ErrorCode.INVALID_REQUEST, "The partition is named more than once in the request.")


class Assignment(NamedTuple):
    """Which replicas a partition has, which of them are in sync, and which come and go."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def moving(partition: PartitionImage) -> bool:
    """Whether a move is under way."""
    return bool(partition.adding or partition.removing)


def toward(partition: PartitionImage, target: Sequence[int]) -> Assignment:
    """The partition on its way to these replicas. A move that is under way goes on to the new place instead."""
    leaving = tuple(sorted(set(partition.replicas) - set(target)))
    original = set(partition.replicas) - set(partition.adding)
    replicas = (*target, *leaving)
    added = tuple(sorted(set(replicas) - original))
    return finished(Assignment(replicas, partition.isr, added, leaving))


def finished(assignment: Assignment) -> Assignment:
    """The end of the move if its replicas are ready for it, else the assignment as it is."""
    if not (assignment.adding or assignment.removing):
        return assignment
    replicas = _without(assignment.replicas, assignment.removing)
    isr = _without(assignment.isr, assignment.removing)
    if not replicas or not set(replicas) <= set(isr):
        return assignment
    return Assignment(replicas, isr)


def reverted(partition: PartitionImage) -> Assignment:
    """The partition as it was before the move. The ISR is empty if only new replicas are in sync."""
    return Assignment(_without(partition.replicas, partition.adding), _without(partition.isr, partition.adding))


def progress(partition: PartitionImage, isr: Sequence[int]) -> Assignment:
    """What the partition comes to with this ISR: the end of its move if that is reached."""
    return finished(Assignment(partition.replicas, tuple(isr), partition.adding, partition.removing))


def _without(replicas: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in gone)


def alter_reassignments(context: Context, command: AlterReassignments) -> Decision[list[tuple[str, int, Outcome]]]:
    """Each partition moves, or stops, or is refused for itself."""
    if len(command.partitions) > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Too many partitions to reassign at once: {len(command.partitions)}, at most "
            f"{PARTITIONS_PER_REQUEST_MAX}; send several requests.",
        )
    electorate = Electorate(context)
    records: list[Record] = []
    outcomes: list[tuple[str, int, Outcome]] = []
    seen: set[tuple[str, int]] = set()
    for move in command.partitions:
        outcome = DONE
        if (move.topic, move.index) in seen:
            outcome = _TWICE
        else:
            seen.add((move.topic, move.index))
            try:
                record = _alter(context, electorate, move, command.allow_replication_factor_change)
                records += [] if record is None else [record]
            except ApiError as error:
                outcome = Outcome.of(error)
        outcomes.append((move.topic, move.index, outcome))
    return Decision(tuple(records), outcomes)


def _alter(
    context: Context, electorate: Electorate, move: ReassignedPartition, allow_replication_factor_change: bool
) -> PartitionChangeRecord | None:
    topic = context.image.topics.get(move.topic)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {move.topic}.")
    if not 0 <= move.index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {move.topic}:{move.index}.")
    partition = topic.partitions[move.index]
    if move.replicas is None:
        return _cancel(context, electorate, topic, move.index)
    check_replicas(context, move.replicas, None, move.index)
    before = len(partition.replicas) - len(partition.removing)
    if not allow_replication_factor_change and before != len(move.replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {before} to {len(move.replicas)}",
        )
    return assign(electorate, topic, move.index, toward(partition, move.replicas))


def _cancel(context: Context, electorate: Electorate, topic: TopicImage, index: int) -> PartitionChangeRecord | None:
    partition = topic.partitions[index]
    if not moving(partition):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    before = reverted(partition)
    record = assign(electorate, topic, index, before)
    complete = before.isr or any(replica in partition.elr for replica in before.replicas)
    if not complete and not _may_be_unclean(context, topic, record):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
            "leader election.",
        )
    return record


def _may_be_unclean(context: Context, topic: TopicImage, record: PartitionChangeRecord | None) -> bool:
    """Records are given up only where that is allowed, and for a leader that is there."""
    config = resolve_topic(context.image.topic_configs(topic.name), context.config)
    elected = record is not None and record.leader is not None and record.leader != NO_LEADER
    return config.unclean_leader_election_enable and elected


def assign(
    electorate: Electorate, topic: TopicImage, index: int, assignment: Assignment
) -> PartitionChangeRecord | None:
    """The record that gives a partition this assignment, with the leader that follows from it."""
    return electorate.change(
        topic,
        index,
        isr=assignment.isr,
        replicas=assignment.replicas,
        adding=assignment.adding,
        removing=assignment.removing,
    )


def list_reassignments(context: Context, command: ListReassignments) -> Decision[list[OngoingReassignment]]:
    """What moves, of the partitions asked for; one that is not there does not move."""
    return Decision((), list(_ongoing(context, command.partitions)))


def _ongoing(context: Context, wanted: Sequence[tuple[str, int]] | None) -> Iterator[OngoingReassignment]:
    for name, index in _all_partitions(context) if wanted is None else dict.fromkeys(wanted):
        topic = context.image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            continue
        partition = topic.partitions[index]
        if moving(partition):
            yield OngoingReassignment(name, index, partition.replicas, partition.adding, partition.removing)


def _all_partitions(context: Context) -> Iterator[tuple[str, int]]:
    for name, topic in context.image.topics.items():
        for index in range(len(topic.partitions)):
            yield name, index
