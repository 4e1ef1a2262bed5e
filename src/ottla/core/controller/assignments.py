"""Which brokers hold a new partition: the checks of what a client asks for, and the records that say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from ottla.core.controller.commands import DEFAULT, NewTopic
from ottla.core.controller.context import Context
from ottla.core.controller.image import BrokerImage
from ottla.core.controller.records import UNASSIGNED_DIRECTORY, PartitionRecord
from ottla.model.errors import ApiError, ErrorCode


def placement_start(topic_id: UUID) -> int:
    """A number that differs from topic to topic and is the same on every replay."""
    return topic_id.int & 0xFFFF


def manual_assignments(context: Context, topic: NewTopic) -> list[tuple[int, ...]]:
    for given, words in ((topic.replication_factor, "replication factor"), (topic.num_partitions, "numPartitions")):
        if given != DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {words} was not set to -1.",
            )
    by_partition: dict[int, tuple[int, ...]] = {}
    for partition, replicas in topic.assignments:
        if partition in by_partition:
            raise bad_assignment(f"Found multiple manual partition assignments for partition {partition}")
        first = next(iter(by_partition.values()), None)
        check_replicas(context, replicas, None if first is None else len(first), partition)
        by_partition[partition] = tuple(replicas)
    if sorted(by_partition) != list(range(len(by_partition))):
        raise bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [by_partition[partition] for partition in range(len(by_partition))]


def check_replicas(context: Context, replicas: Sequence[int], expected: int | None, partition: int) -> None:
    if not replicas:
        raise bad_assignment("The manual partition assignment includes an empty replica list.")
    for broker_id, times in sorted(Counter(replicas).items()):
        if broker_id not in context.image.brokers:
            raise bad_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if times > 1:
            raise bad_assignment(f"The manual partition assignment includes the broker {broker_id} more than once.")
    if expected is not None and len(replicas) != expected:
        raise bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {expected} replica(s)."
        )
    if not any(context.image.brokers[broker_id].active for broker_id in replicas):
        raise bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown."
        )


def bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def partition_records(
    context: Context, topic_id: UUID, first_partition: int, assignments: Iterable[tuple[int, ...]]
) -> Iterator[PartitionRecord]:
    """New partitions: in sync are the replicas on active brokers, and the first of these leads."""
    brokers = context.image.brokers
    for partition, replicas in enumerate(assignments, first_partition):
        isr = tuple(broker_id for broker_id in replicas if brokers[broker_id].active)
        yield PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            directories=tuple(default_directory(brokers[broker_id]) for broker_id in replicas),
        )


def default_directory(broker: BrokerImage | None) -> UUID:
    """A broker with one log directory has no choice; others tell later which one they took."""
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY
