"""Decisions about the partitions of topics that are there: more of them, and who leads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.core.controller.assignments import bad_assignment, check_replicas, partition_records, placement_start
from ottla.core.controller.commands import (
    DONE,
    CreatePartitions,
    Decision,
    Election,
    ElectLeaders,
    MorePartitions,
    NamedOutcome,
    Outcome,
    PartitionOutcome,
)
from ottla.core.controller.context import Context
from ottla.core.controller.elections import ElectionKind, Electorate
from ottla.core.controller.placement import place_partitions
from ottla.core.controller.records import NO_LEADER, PartitionChangeRecord, PartitionRecord, Record
from ottla.core.controller.topics import DUPLICATE_NAME, TOO_MANY_PARTITIONS, existing_topic
from ottla.core.controller.validation import PARTITIONS_PER_REQUEST_MAX
from ottla.model.errors import ApiError, ErrorCode

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


def create_partitions(context: Context, command: CreatePartitions) -> Decision[list[NamedOutcome]]:
    """Each topic grows or is refused for itself."""
    times = Counter(topic.name for topic in command.topics)
    records: list[Record] = []
    answers: dict[str, NamedOutcome] = {}
    for more in command.topics:
        if times[more.name] > 1:
            answers[more.name] = NamedOutcome(more.name, DUPLICATE_NAME)
            continue
        try:
            records += _grow(context, more, len(records))
            answers[more.name] = NamedOutcome(more.name, DONE)
        except ApiError as error:
            answers[more.name] = NamedOutcome(more.name, Outcome.of(error))
    return Decision(() if command.validate_only else tuple(records), list(answers.values()))


def _grow(context: Context, more: MorePartitions, asked_before: int) -> Iterator[PartitionRecord]:
    topic = existing_topic(context, more.name)
    current = len(topic.partitions)
    if more.partition_count == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if more.partition_count < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {more.name} currently has {current} partition(s); "
            f"{more.partition_count} would not be an increase.",
        )
    added = more.partition_count - current
    if added + asked_before > PARTITIONS_PER_REQUEST_MAX:
        raise TOO_MANY_PARTITIONS.error()
    replication_factor = len(topic.partitions[0].replicas)
    if more.assignments is None:
        assignments = place_partitions(
            context.image.brokers.values(),
            first_partition=current,
            count=added,
            replication_factor=replication_factor,
            start=placement_start(topic.id),
        )
    else:
        assignments = _manual_growth(context, more.assignments, current, added, replication_factor)
    return partition_records(context, topic.id, current, assignments)


def _manual_growth(
    context: Context, given: Sequence[Sequence[int]], current: int, added: int, replication_factor: int
) -> list[tuple[int, ...]]:
    if len(given) != added:
        raise bad_assignment(
            f"Attempted to add {added} additional partition(s), but only {len(given)} assignment(s) were specified."
        )
    for partition, replicas in enumerate(given, current):
        check_replicas(context, replicas, replication_factor, partition)
    return [tuple(replicas) for replicas in given]


def elect_leaders(context: Context, command: ElectLeaders) -> Decision[Election]:
    """Elections for the partitions asked for, or for all that need one."""
    if command.election_type not in (_PREFERRED, _UNCLEAN):
        unknown = Outcome(ErrorCode.INVALID_REQUEST, f"Unknown election type {command.election_type}")
        return Decision(
            (), Election(unknown, [PartitionOutcome(*asked, unknown) for asked in command.partitions or ()])
        )
    electorate = Electorate(context)
    asked_for_all = command.partitions is None
    wanted = _all_partitions(context) if command.partitions is None else command.partitions
    records: list[Record] = []
    outcomes: list[PartitionOutcome] = []
    for topic, partition in dict.fromkeys(wanted):
        try:
            records.append(_elect(context, electorate, command.election_type, topic, partition))
            outcomes.append(PartitionOutcome(topic, partition, DONE))
        except ApiError as error:
            if not (asked_for_all and error.code is ErrorCode.ELECTION_NOT_NEEDED):
                outcomes.append(PartitionOutcome(topic, partition, Outcome.of(error)))
    return Decision(tuple(records), Election(DONE, outcomes))


def _all_partitions(context: Context) -> Iterator[tuple[str, int]]:
    for name, topic in context.image.topics.items():
        for partition in range(len(topic.partitions)):
            yield name, partition


def _elect(
    context: Context, electorate: Electorate, election_type: int, name: str, index: int
) -> PartitionChangeRecord:
    topic = context.image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    partition = topic.partitions[index]
    preferred = election_type == _PREFERRED
    if partition.leader == partition.replicas[0] or (not preferred and partition.leader != NO_LEADER):
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    record = electorate.change(topic, index, kind=ElectionKind.PREFERRED if preferred else ElectionKind.UNCLEAN)
    if record is not None and record.leader is not None and record.leader != NO_LEADER:
        return record
    if preferred:
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
