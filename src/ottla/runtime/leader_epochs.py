"""What a partition says of its leader epochs to those who ask.

A leader's epoch begins at the end of its log, whether or not anything is ever written in it. Where there are followers
that is noted when the epoch begins. A sole replica notes it with its first batch, so that quiet partitions cost no file
when a broker starts and stops; until then it is known from where the log ends, which has not moved since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition


def latest_epoch(partition: Partition) -> int:
    """The last epoch that has begun; -1 if a replica that does not lead knows of none."""
    latest = partition.log.epochs.latest
    return max(latest, partition.leader_epoch) if partition.leads else latest


def epoch_of(partition: Partition, offset: int) -> int:
    """The epoch of the leader that wrote `offset`, or is about to; -1 if that is not known."""
    log = partition.log
    return latest_epoch(partition) if offset >= log.log_end_offset else log.epochs.epoch_of(offset)


def end_offset_for(partition: Partition, epoch: int) -> tuple[int, int]:
    """The largest epoch that is not beyond `epoch`, and the offset where it ends; (-1, -1) if that is not known."""
    log = partition.log
    end_offset, noted, current = log.log_end_offset, log.epochs.latest, latest_epoch(partition)
    if noted < current and max(noted, 0) <= epoch <= current:
        # The epoch that is noted last ends where the one that is not noted begins.
        return (noted if noted >= 0 and epoch < current else epoch), end_offset
    return log.epochs.end_offset_for(epoch, end_offset)
