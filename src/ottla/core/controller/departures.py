"""What happens to partitions when a broker goes, comes, or comes back after a crash.

Each function gives the records for all partitions that are touched. They look at every partition of the cluster: that
is cheaper than an index that every change of an ISR would have to keep, by far (a millisecond for 5,000 partitions).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from uuid import UUID

from ottla.core.controller.elections import Electorate, directory_of
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.records import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionChangeRecord


def leave(electorate: Electorate, image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """A broker is not active any more: out of every ISR. Its records are still there, so it may stay eligible."""
    for topic, index, partition in _in_sync_at(image, broker_id):
        if broker_id in partition.isr or partition.leader == broker_id:
            record = electorate.change(topic, index, isr=_without(partition.isr, broker_id))
            if record is not None:
                yield record


def hand_over(electorate: Electorate, image: MetadataImage, broker_id: int) -> tuple[list[PartitionChangeRecord], int]:
    """A broker is about to stop: what others can take over now, and how many partitions had better wait.

    A partition waits if it would have no leader, or fewer than min.insync.replicas in sync, while another replica
    lives that may catch up. Where there is none, waiting is of no use, and it keeps its leader until that is gone.
    """
    records: list[PartitionChangeRecord] = []
    waiting = 0
    for topic, index, partition in _in_sync_at(image, broker_id):
        if broker_id not in partition.isr:
            continue
        rest = _without(partition.isr, broker_id)
        others = [replica for replica in partition.replicas if replica != broker_id]
        may_catch_up = any(replica not in rest and electorate.may_lead(partition, replica) for replica in others)
        if may_catch_up and len(rest) < max(1, electorate.min_insync(topic.name, partition)):
            waiting += 1
        elif any(electorate.may_lead(partition, replica) for replica in rest):
            record = electorate.change(topic, index, isr=rest)
            if record is not None:
                records.append(record)
    return records, waiting


def come_back(electorate: Electorate, image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """A broker is active: partitions that nobody leads may have found a leader.

    One that it still leads may have lost it, where a directory did not come back with the broker.
    """
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            lost = partition.leader == broker_id and not electorate.may_lead(partition, broker_id)
            if lost or (partition.leader == NO_LEADER and broker_id in partition.replicas):
                record = electorate.change(topic, index, isr=_without(partition.isr, broker_id) if lost else None)
                if record is not None:
                    yield record


def start_over(
    electorate: Electorate, image: MetadataImage, broker: BrokerImage, *, before: BrokerImage | None
) -> Iterator[PartitionChangeRecord]:
    """A broker was not stopped cleanly: what it had not on disk is gone, so it is not in sync any more.

    Nobody has more than a replica that was alone in sync, so that one goes on, in a new epoch, from which consumers
    can tell that records may be gone; unless its disk is gone too.
    """
    wiped = before is not None and bool(before.log_dirs) and not set(before.log_dirs) & set(broker.log_dirs)
    for topic, index, partition in _in_sync_at(image, broker.id):
        others = [replica for replica in (*partition.isr, *partition.elr) if replica != broker.id]
        lost = wiped and len(partition.replicas) > 1 and directory_of(partition, broker.id) == UNASSIGNED_DIRECTORY
        stays = not others and not lost
        leads_on = stays and electorate.may_lead(partition, broker.id)
        record = electorate.change(
            topic,
            index,
            isr=partition.isr if leads_on else _without(partition.isr, broker.id),
            not_eligible=() if stays else (broker.id,),
            new_epoch=leads_on and partition.leader == broker.id,
            last_known_leader=() if lost else None,
        )
        if record is not None:
            yield record


def lose_directories(
    electorate: Electorate, image: MetadataImage, broker_id: int, directories: Collection[UUID]
) -> Iterator[PartitionChangeRecord]:
    """Directories of a broker failed: out of the ISR of what is in them."""
    for topic, index, partition in _in_sync_at(image, broker_id):
        if broker_id in partition.isr and directory_of(partition, broker_id) in directories:
            record = electorate.change(topic, index, isr=_without(partition.isr, broker_id))
            if record is not None:
                yield record


def _in_sync_at(image: MetadataImage, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.isr or broker_id in partition.elr or partition.leader == broker_id:
                yield topic, index, partition


def _without(members: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple([member for member in members if member != broker_id])
