"""Bugs of a cluster: the quorum, the controller, and replication."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ottla.core.controller import registrations
from ottla.core.quorum.elections import Elections
from ottla.core.replication.leader import LeaderReplication
from ottla.runtime import follower_reading
from ottla.runtime.followed_partition import FollowedPartition
from ottla.runtime.partition import Partition
from ottla.runtime.quorum_log import QuorumLog
from ottla.runtime.quorum_state import QuorumState
from simulator.bugs.bug import Bug, Patches

TOGETHER: Final[dict[str, Any]] = {
    "nodes": 3,
    "replicas": 3,
    "seconds": 60,
    "seconds_between_faults": 3.0,
    "seconds_between_transactions": 3.0,
}
SYNCED: Final[dict[str, Any]] = {**TOGETHER, "flush_each": True}
UNSYNCED: Final[dict[str, Any]] = {**TOGETHER, "flush_each": False}
STORMY: Final[dict[str, Any]] = {**UNSYNCED, "seconds": 40, "seconds_between_faults": 1.2}
BUSY: Final[dict[str, Any]] = {**STORMY, "seconds_between_sends": 0.05, "readers": 4}
"""Whenever a leader goes, something is on its way to the followers, and somebody reads what the next one shows."""


def _quorum_counts_what_is_not_synced(patches: Patches) -> None:
    patches.put(QuorumLog, "synced_offset", property(lambda log: log.end_offset))


def _votes_are_given_to_anybody(patches: Patches) -> None:
    patches.put(Elections, "_would_grant", lambda self, request: True)


def _leaders_commit_alone(patches: Patches) -> None:
    def advance(self: LeaderReplication, own_end_offset: int, now_ms: int) -> int:
        self.high_watermark = max(self.high_watermark, own_end_offset)
        return self.high_watermark

    patches.put(LeaderReplication, "advance", advance)


def _everybody_is_in_sync(patches: Patches) -> None:
    def belongs(self: LeaderReplication, follower: Any, own_end_offset: int, now_ms: int) -> bool:
        return True

    patches.put(LeaderReplication, "_belongs", belongs)


def _every_start_counts_as_clean(patches: Patches) -> None:
    patches.put(registrations, "_was_stopped_cleanly", lambda command, before: before is not None)


def _leader_epochs_are_not_compared(patches: Patches) -> None:
    patches.put(Partition, "check_leader_epoch", lambda self, current_leader_epoch: None)
    patches.put(follower_reading, "divergence", lambda fetched, log: None)


def _votes_are_not_stored(patches: Patches) -> None:
    original = QuorumLog._to_store

    def to_store(self: QuorumLog) -> QuorumState:
        return replace(original(self), voted_id=-1)

    patches.put(QuorumLog, "_to_store", to_store)


def _followers_cut_to_the_high_watermark(patches: Patches) -> None:
    original = FollowedPartition.open

    async def open_and_cut(self: FollowedPartition) -> None:
        await original(self)
        if self.is_current and self.partition.high_watermark < self.partition.log.log_end_offset:
            await self.truncate_to(self.partition.high_watermark)

    patches.put(FollowedPartition, "open", open_and_cut)


def _new_leaders_commit_what_they_have(patches: Patches) -> None:
    original = Partition._begin_epoch

    def begin_epoch(self: Partition, log: Any) -> None:
        self.high_watermark = log.log_end_offset
        original(self, log)

    patches.put(Partition, "_begin_epoch", begin_epoch)


CLUSTER: Final = (
    Bug(
        "the quorum counts what is not synced",
        "acknowledge before fsync",
        15,
        _quorum_counts_what_is_not_synced,
        SYNCED,
    ),
    Bug("votes are given to anybody", "a leader that lacks entries", 15, _votes_are_given_to_anybody, SYNCED),
    Bug("leaders commit alone", "high watermark without followers", 6, _leaders_commit_alone, UNSYNCED),
    Bug("everybody is in sync", "the ISR holds who lags", 10, _everybody_is_in_sync, UNSYNCED),
    Bug("every start counts as clean", "a lost tail stays in the ISR", 25, _every_start_counts_as_clean, STORMY),
    Bug("votes are not stored", "a voter votes twice in an epoch", 3, _votes_are_not_stored, SYNCED),
    Bug(
        "followers cut to the high watermark",
        "not by the leader's epochs",
        20,
        _followers_cut_to_the_high_watermark,
        UNSYNCED,
    ),
    Bug(
        "new leaders commit what they have",
        "high watermark without the epoch's followers",
        25,
        _new_leaders_commit_what_they_have,
        BUSY,
    ),
    Bug("leader epochs are not compared", "no fence on fetch", 20, _leader_epochs_are_not_compared, STORMY),
)
