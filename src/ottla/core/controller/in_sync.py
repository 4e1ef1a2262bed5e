"""Decisions on what leaders ask for: another ISR, and on where replicas are.

A leader names the state in which it asks, by epochs. What it asks for is carried out only if that state is still the
partition's: so a leader that was replaced, or has not heard of a change, changes nothing. A replica comes into the ISR
only if its broker is active and lives the same life as when the leader saw it fetch: otherwise it may have lost in a
crash what the leader believes it to have.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ottla.core.controller.brokers import check_broker_epoch
from ottla.core.controller.builder import changed_partition
from ottla.core.controller.cluster_commands import (
    AlteredPartition,
    AlterPartitions,
    AssignReplicasToDirectories,
    InSyncReplica,
    PartitionToAlter,
    ReplicaDirectory,
)
from ottla.core.controller.commands import DONE, Decision, Outcome
from ottla.core.controller.context import Context
from ottla.core.controller.elections import RECOVERED, RECOVERING, Electorate, directory_of, has_directory
from ottla.core.controller.image import BrokerImage, PartitionImage, TopicImage
from ottla.core.controller.reassignments import progress
from ottla.core.controller.records import RESERVED_DIRECTORIES, Record
from ottla.model.errors import ApiError, ErrorCode


def alter_partitions(context: Context, command: AlterPartitions) -> Decision[list[AlteredPartition]]:
    """Each partition is changed or refused for itself."""
    check_broker_epoch(context, command.broker_id, command.broker_epoch)
    electorate = Electorate(context)
    records: list[Record] = []
    answers: list[AlteredPartition] = []
    seen: set[tuple[UUID, int]] = set()
    for asked in command.partitions:
        try:
            if (asked.topic_id, asked.index) in seen:
                raise _refused(f"Partition {asked.index} is asked for twice.")
            seen.add((asked.topic_id, asked.index))
            topic = _topic(context, asked.topic_id, asked.index)
            answers.append(_alter(context, electorate, command.broker_id, topic, asked, records))
        except ApiError as error:
            answers.append(AlteredPartition(asked.topic_id, asked.index, Outcome.of(error)))
    return Decision(tuple(records), answers)


def _alter(
    context: Context,
    electorate: Electorate,
    broker_id: int,
    topic: TopicImage,
    asked: PartitionToAlter,
    records: list[Record],
) -> AlteredPartition:
    partition = topic.partitions[asked.index]
    _check_state(broker_id, partition, asked)
    _check_isr(partition, asked)
    for member in asked.new_isr:
        _check_member(context, partition, member)
    isr = tuple(member.broker_id for member in asked.new_isr)
    then = progress(partition, isr)
    record = electorate.change(
        topic,
        asked.index,
        isr=then.isr,
        replicas=None if then.replicas == partition.replicas else then.replicas,
        adding=then.adding,
        removing=then.removing,
        directories=_directories(context, partition, then.replicas, then.isr),
        leader_recovery_state=asked.leader_recovery_state,
    )
    if record is not None:
        records.append(record)
        partition = changed_partition(partition, record)
    if partition.leader != broker_id:
        # The partition has moved away from who led it, and its move is done: an answer, although it is an error.
        raise ApiError(ErrorCode.NEW_LEADER_ELECTED, f"The leader is {partition.leader} from now on.")
    return AlteredPartition(
        asked.topic_id,
        asked.index,
        DONE,
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.partition_epoch,
        partition.leader_recovery_state,
    )


def _topic(context: Context, topic_id: UUID, index: int) -> TopicImage:
    topic = context.image.topics_by_id.get(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {topic_id}.")
    if not 0 <= index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} has no partition {index}.")
    return topic


def _check_state(broker_id: int, partition: PartitionImage, asked: PartitionToAlter) -> None:
    """Kafka's checks in Kafka's order."""
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "The leader knows more than this controller: another one is active.")
    if asked.leader_epoch < partition.leader_epoch:
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH, f"The leader epoch is {partition.leader_epoch}, not {asked.leader_epoch}."
        )
    if broker_id != partition.leader:
        raise _refused(f"Broker {broker_id} does not lead the partition; broker {partition.leader} does.")
    if asked.partition_epoch < partition.partition_epoch:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The partition epoch is {partition.partition_epoch}, not {asked.partition_epoch}.",
        )


def _check_isr(partition: PartitionImage, asked: PartitionToAlter) -> None:
    members = [member.broker_id for member in asked.new_isr]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        raise _refused(f"The ISR {members} is not a part of the replicas {list(partition.replicas)}.")
    if partition.leader not in members:
        raise _refused(f"The ISR {members} does not have the leader {partition.leader}.")
    if asked.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise _refused(f"There is no leader recovery state {asked.leader_recovery_state}.")
    if asked.leader_recovery_state == RECOVERING and len(members) > 1:
        raise _refused("A leader that recovers is alone in the ISR.")
    if asked.leader_recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise _refused("A leader that has recovered does not recover again.")


def _check_member(context: Context, partition: PartitionImage, member: InSyncReplica) -> None:
    broker = context.image.brokers.get(member.broker_id)
    reason = None
    if broker is None:
        reason = "not registered"
    elif member.broker_id == partition.leader:
        return  # It may be about to stop, and waits for those that it asks for.
    elif broker.fenced:
        reason = "fenced"
    elif broker.in_controlled_shutdown:
        reason = "about to stop"
    elif member.broker_epoch not in (-1, broker.epoch):
        reason = f"in another life, with epoch {broker.epoch}, not {member.broker_epoch}"
    elif not has_directory(broker, partition) and len(broker.log_dirs) != 1:
        reason = "without the directory of its replica"
    if reason is not None:
        raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {member.broker_id} is {reason}.")


def _directories(
    context: Context, partition: PartitionImage, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> Sequence[UUID] | None:
    """The directories with those replaced that are gone, as after a disk was replaced; None if all are right.

    A broker with one directory has its replica there. It has fetched everything again before it is in sync.
    """
    if replicas != partition.replicas:
        return None
    fresh: list[UUID] = []
    for replica in partition.replicas:
        broker = context.image.brokers.get(replica)
        here = directory_of(partition, replica)
        moved = broker is not None and replica in isr and not has_directory(broker, partition)
        fresh.append(broker.log_dirs[0] if moved and broker is not None and len(broker.log_dirs) == 1 else here)
    return fresh if tuple(fresh) != partition.directories and partition.directories else None


def assign_replicas_to_directories(
    context: Context, command: AssignReplicasToDirectories
) -> Decision[list[tuple[ReplicaDirectory, Outcome]]]:
    """Each replica is assigned or refused for itself."""
    broker = check_broker_epoch(context, command.broker_id, command.broker_epoch)
    electorate = Electorate(context)
    records: list[Record] = []
    answers: list[tuple[ReplicaDirectory, Outcome]] = []
    seen: set[tuple[UUID, int]] = set()
    for asked in command.replicas:
        try:
            if (asked.topic_id, asked.index) in seen:
                raise _refused(f"Partition {asked.index} is asked for twice.")
            seen.add((asked.topic_id, asked.index))
            records += _assign(context, electorate, broker, asked)
            answers.append((asked, DONE))
        except ApiError as error:
            answers.append((asked, Outcome.of(error)))
    return Decision(tuple(records), answers)


def _assign(context: Context, electorate: Electorate, broker: BrokerImage, asked: ReplicaDirectory) -> Sequence[Record]:
    topic = _topic(context, asked.topic_id, asked.index)
    partition = topic.partitions[asked.index]
    if broker.id not in partition.replicas:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {broker.id} has no replica of the partition.")
    if asked.directory_id.int < RESERVED_DIRECTORIES:
        raise _refused(f"{asked.directory_id} is not a directory.")
    if directory_of(partition, broker.id) == asked.directory_id:
        return ()
    directories = [
        asked.directory_id if replica == broker.id else directory_of(partition, replica)
        for replica in partition.replicas
    ]
    # The directory failed before it could be reported: what is in it is not in sync, but may be so again.
    failed = bool(broker.log_dirs) and asked.directory_id not in broker.log_dirs
    # In another directory than one that is gone it begins with nothing. Nobody has more than a sole replica, it leads.
    begins_anew = not failed and not has_directory(broker, partition) and len(partition.replicas) > 1
    leaves = failed or begins_anew
    record = electorate.change(
        topic,
        asked.index,
        isr=[member for member in partition.isr if not (leaves and member == broker.id)],
        not_eligible=(broker.id,) if begins_anew else (),
        directories=directories,
        last_known_leader=() if begins_anew and partition.last_known_elr == (broker.id,) else None,
    )
    return () if record is None else (record,)


def _refused(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
