"""What a follower's fetch gets, and which follower a consumer is sent to.

What an editor must keep true: a follower's fetch counts only after the leader epoch, the epoch of the follower's last
batch and the offset have been checked. A follower whose log has parted from this one has the offsets, not the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.replication.quota import is_throttled
from ottla.model.errors import ApiError
from ottla.runtime.leader_epochs import end_offset_for
from ottla.wire.fetch_types import EpochEndOffset, PartitionData, partition_data

if TYPE_CHECKING:
    from ottla.model.chunks import FileSlice
    from ottla.runtime.fetch_sessions import FetchedPartition, FetchSession
    from ottla.runtime.partition import Partition


def has_something(fetched: FetchedPartition, now_ms: int) -> bool:
    """Count what a follower has, and say whether there is something to answer it with. True where that is not plain."""
    partition = fetched.partition
    log = None if partition is None else partition.log_or_none
    if partition is None or log is None:
        return True
    end_offset, fetch_offset = log.log_end_offset, fetched.fetch_offset
    if fetched.is_uncounted:
        if (
            fetched.current_leader_epoch != partition.leader_epoch
            or 0 <= fetched.last_fetched_epoch != log.epochs.latest
            or not log.log_start_offset <= fetch_offset <= end_offset
        ):
            return True
        session = fetched.session
        try:
            partition.follower_fetched(
                session.replica_id, session.replica_epoch, fetch_offset, fetched.log_start_offset, now_ms
            )
        except ApiError:
            return True
        fetched.is_uncounted = False
    return fetch_offset < end_offset or fetched.is_behind(partition.high_watermark, log.log_start_offset)


def expects_more(session: FetchSession) -> float:
    """For how many seconds all that a follower could be given now is likely to get company; 0 if it is not."""
    seconds = 0.0
    for fetched in session.dirty:
        partition = fetched.partition
        log = None if partition is None else partition.log_or_none
        if partition is None or log is None or fetched.is_uncounted:
            return 0
        if fetched.fetch_offset < log.log_end_offset:
            more = 0.0 if partition.waits is None else partition.waits.expects_more(fetched.fetch_offset)
            if not more:
                return 0
            seconds = more if not seconds else min(seconds, more)
    return seconds


def follower_data(
    fetched: FetchedPartition, partition: Partition, room: int, now_ms: int, *, at_least_one: bool
) -> PartitionData:
    """The answer to a follower, for one partition that is led here. ApiError: what is wrong with its question."""
    if fetched.current_leader_epoch != partition.leader_epoch:
        partition.check_leader_epoch(fetched.current_leader_epoch)
    log = partition.log_or_none or partition.log
    start_offset = log.log_start_offset
    fetched_epoch = fetched.last_fetched_epoch
    if fetched_epoch >= 0 and (fetched_epoch != log.epochs.latest or fetched.fetch_offset > log.log_end_offset):
        diverging = divergence(fetched, partition)
        if diverging is not None:
            return PartitionData(
                fetched.index,
                0,
                partition.high_watermark,
                partition.last_stable_offset,
                start_offset,
                diverging_epoch=diverging,
            )
    max_bytes = fetched.max_bytes if fetched.max_bytes < room else room
    records = log.read(fetched.fetch_offset, max_bytes, log.log_end_offset, at_least_one)
    if records is not None and partition.throttled_replicas:
        records = _throttled(fetched, partition, records, now_ms)
    if fetched.is_uncounted:
        session = fetched.session
        fetched.is_uncounted = False
        partition.follower_fetched(
            session.replica_id, session.replica_epoch, fetched.fetch_offset, fetched.log_start_offset, now_ms
        )
    high_watermark = partition.high_watermark
    return partition_data(
        (fetched.index, 0, high_watermark, high_watermark, start_offset, None, -1, records, None, None, None)
    )


def _throttled(fetched: FetchedPartition, partition: Partition, records: FileSlice, now_ms: int) -> FileSlice | None:
    """The records, unless the quota is spent; who is in sync gets them all the same, and they count."""
    if not is_throttled(partition.throttled_replicas, partition.index, partition.leader_id):
        return records
    quota = partition.neighbours.leader_quota
    if fetched.session.replica_id not in partition.isr and quota.wait_ms(now_ms):
        return None
    quota.record(records.length, now_ms)
    return records


def divergence(fetched: FetchedPartition, partition: Partition) -> EpochEndOffset | None:
    """Where this log parted from what the fetcher has, if it did; (-1, -1) if it does not know its epoch at all."""
    epoch, end_offset = end_offset_for(partition, fetched.last_fetched_epoch)
    if epoch < fetched.last_fetched_epoch or end_offset < fetched.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def closest_replica(rack: str, fetch_offset: int, partition: Partition) -> int:
    """The in-sync follower in the consumer's rack that has most; -1 if the leader is as close as any."""
    replication, brokers = partition.replication, partition.neighbours.brokers
    leader = brokers.get(partition.leader_id)
    if replication is None or (leader is not None and leader.rack == rack):
        return -1
    best, best_end = -1, -1
    for replica in partition.isr:
        follower, broker = replication.followers.get(replica), brokers.get(replica)
        if (
            follower is not None
            and broker is not None
            and broker.rack == rack
            and broker.active
            and follower.log_start_offset <= fetch_offset <= follower.end_offset
            and follower.end_offset > best_end
        ):
            best, best_end = replica, follower.end_offset
    return best
