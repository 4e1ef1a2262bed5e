"""How far each replica of the log is, as its leader sees it from their fetches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.core.quorum.voters import ReplicaKey, Voter, VoterSet

OBSERVERS_MAX: Final = 1000
OBSERVER_FORGOTTEN_MS: Final = 300_000


@dataclass(slots=True)
class ReplicaProgress:
    """One replica. Everything below `end_offset` is on its disk; -1 until it has fetched in this epoch."""

    key: ReplicaKey
    end_offset: int = -1
    fetched_ms: int = -1
    caught_up_ms: int = -1
    leader_end_offset: int = -1
    """Where the leader's log ended at the last fetch: whoever reaches it was caught up then."""


class Progress:
    """All replicas that have fetched in this epoch, by node and directory."""

    __slots__ = ("_replicas", "_since_ms")

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._replicas: dict[ReplicaKey, ReplicaProgress] = {}

    def fetched(self, key: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A replica has everything below `offset`, and asks for more."""
        replica = self._replicas.pop(key, None) or ReplicaProgress(key)
        # The one that fetched last stands last.
        self._replicas[key] = replica
        if offset >= leader_end_offset:
            replica.caught_up_ms = now_ms
        elif replica.leader_end_offset >= 0 and offset >= replica.leader_end_offset:
            replica.caught_up_ms = max(replica.caught_up_ms, replica.fetched_ms)
        replica.end_offset = offset
        replica.fetched_ms = now_ms
        replica.leader_end_offset = leader_end_offset
        if len(self._replicas) > OBSERVERS_MAX:
            del self._replicas[next(iter(self._replicas))]

    def forget_idle(self, voters: VoterSet, now_ms: int) -> None:
        """Drop observers that have gone."""
        idle = [
            key
            for key, replica in self._replicas.items()
            if now_ms - replica.fetched_ms > OBSERVER_FORGOTTEN_MS and not voters.includes(key)
        ]
        for key in idle:
            del self._replicas[key]

    def of(self, voter: Voter) -> ReplicaProgress | None:
        """Where a voter is; one whose directory is not known is whoever fetched last under its id."""
        if voter.is_known:
            return self._replicas.get(voter.key)
        return next((found for found in reversed(self._replicas.values()) if found.key.id == voter.id), None)

    def find(self, key: ReplicaKey) -> ReplicaProgress | None:
        return self._replicas.get(key)

    def observers(self, voters: VoterSet) -> Iterator[ReplicaProgress]:
        return (found for found in self._replicas.values() if not voters.includes(found.key))

    def ends(self, voters: VoterSet) -> dict[int, int]:
        """How far each voter is."""
        return {voter.id: found.end_offset for voter in voters.voters if (found := self.of(voter)) is not None}

    def directories(self, voters: VoterSet) -> dict[int, UUID]:
        """The directories of the voters that have fetched."""
        found = ((voter.id, self.of(voter)) for voter in voters.voters)
        return {voter_id: replica.key.directory_id for voter_id, replica in found if replica is not None}

    def heard_ms(self, voter: Voter) -> int:
        """When a voter fetched last; at first it counts as heard when the epoch began."""
        replica = self.of(voter)
        return self._since_ms if replica is None else max(replica.fetched_ms, self._since_ms)
