"""Bugs of requests that are served together: those of one receive, and those of one turn of the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.api import produce_ahead
from ottla.api.produce import ACKS_LEADER
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import StorageError
from ottla.runtime.partition import Partition
from ottla.wire.batch import BatchHeader
from ottla.wire.produce_lead import Lead
from simulator.bugs.bug import Bug, Patches

CROWDED: Final[dict[str, Any]] = {
    "nodes": 1,
    "replicas": 1,
    "partitions": 2,
    "seconds": 60,
    "seconds_between_faults": 3.0,
    "flush_each": False,
    "segment_bytes": 1 << 20,
    "producers": 8,
    "window": 5,
    "burst_share": 1.0,
    "seconds_between_sends": 0.1,
    "transactional_producers": 0,
    "group_members": 0,
}
"""Producers that always have several batches under way, and segments in which these have room."""
REPLICATED: Final[dict[str, Any]] = {**CROWDED, "nodes": 3, "replicas": 3}


def _repeats_in_a_group_are_written(patches: Patches) -> None:
    original = PartitionLog._are_next

    def are_next(self: PartitionLog, headers: Sequence[BatchHeader]) -> bool:
        return len(headers) > 1 or original(self, headers)

    patches.put(PartitionLog, "_are_next", are_next)


def _failed_groups_are_answered(patches: Patches) -> None:
    for name in ("append_run", "append_next"):
        patches.put(Partition, name, _without_failures(getattr(Partition, name)))


def _without_failures(original: Callable[..., int | None]) -> Callable[..., int | None]:
    def append(self: Partition, *batches: Any) -> int | None:
        try:
            return original(self, *batches)
        except StorageError:
            return self.log.log_end_offset

    return append


def _groups_do_not_wait_for_followers(patches: Patches) -> None:
    original = produce_ahead.lead_for

    def lead_for(caller: produce_ahead.Sender, frame: memoryview) -> Lead | None:
        lead = original(caller, frame)
        if lead is not None:
            lead.acks = ACKS_LEADER
        return lead

    patches.put(produce_ahead, "lead_for", lead_for)


GROUPED_WRITES: Final = (
    Bug("repeats in a group are written", "sequence numbers", 6, _repeats_in_a_group_are_written, REPLICATED),
    Bug("failed groups are answered", "a write that failed counts", 12, _failed_groups_are_answered, CROWDED),
    Bug("groups do not wait", "acks=all without followers", 12, _groups_do_not_wait_for_followers, REPLICATED),
)
