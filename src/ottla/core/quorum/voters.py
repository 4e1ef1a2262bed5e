"""Who votes: a replica is a node *and* the directory of its log, so a node whose disk was wiped is another one.

Until the directory of each voter is known the quorum is being founded: then every voter must agree, not a majority,
since a voter cannot be told from its successor on an empty disk. From then on a majority of exact replicas decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import ZERO_UUID


class ReplicaKey(NamedTuple):
    """A node and its directory; ZERO_UUID where the directory is not known."""

    id: int
    directory_id: UUID = ZERO_UUID


class VoterEndpoint(NamedTuple):
    """Where a voter listens."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the quorum."""

    id: int
    directory_id: UUID = ZERO_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()
    key: ReplicaKey = field(init=False, repr=False, compare=False)
    is_known: bool = field(init=False, repr=False, compare=False)
    """Whether its directory is."""

    def __post_init__(self) -> None:
        # Said once: a leader asks at every fetch.
        object.__setattr__(self, "key", ReplicaKey(self.id, self.directory_id))
        object.__setattr__(self, "is_known", self.directory_id != ZERO_UUID)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters at one point of the log, by rising id."""

    voters: tuple[Voter, ...]
    ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    is_known: bool = field(init=False, repr=False, compare=False)
    """Whether the directory of every voter is known: the quorum is founded."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(voter.id for voter in self.voters))
        object.__setattr__(self, "is_known", all(voter.is_known for voter in self.voters))

    @classmethod
    def of(cls, voters: Collection[Voter]) -> VoterSet:
        return cls(tuple(sorted(voters, key=lambda voter: voter.id)))

    @property
    def needed(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1 if self.is_known else len(self.voters)

    def find(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.id == node_id:
                return voter
        return None

    def includes(self, key: ReplicaKey) -> bool:
        """Whether this very replica votes; one whose directory is not known yet is taken by its id."""
        voter = self.find(key.id)
        return voter is not None and (not voter.is_known or voter.directory_id == key.directory_id)

    def is_sole(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.includes(key)

    def wins(self, granted: Collection[int]) -> bool:
        return sum(voter.id in granted for voter in self.voters) >= self.needed

    def can_win(self, rejected: Collection[int]) -> bool:
        return len(self.voters) - sum(voter.id in rejected for voter in self.voters) >= self.needed

    def agreed(self, ends: Mapping[int, int]) -> int:
        """The highest offset below which enough voters have everything; `ends` is how far each is, -1 if missing."""
        found = sorted((ends.get(voter.id, -1) for voter in self.voters), reverse=True)
        return found[self.needed - 1] if found else -1

    def with_directories(self, directories: Mapping[int, UUID]) -> VoterSet:
        return VoterSet(
            tuple(replace(voter, directory_id=directories.get(voter.id, voter.directory_id)) for voter in self.voters)
        )

    def with_voter(self, voter: Voter) -> VoterSet:
        """With a new voter, or with a voter as it is now."""
        return VoterSet.of([*(found for found in self.voters if found.id != voter.id), voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.id != node_id))


class _Change(NamedTuple):
    offset: int
    voters: VoterSet


class VoterHistory:
    """The voter sets that stand in the log, in their order. The last one counts, committed or not.

    `beginning` is what held before the first of them: that of the snapshot, or what the config says. What is truncated
    from the log is undone here.
    """

    __slots__ = ("_beginning", "_changes", "_is_recorded")

    def __init__(self, beginning: VoterSet, *, is_recorded: bool = False) -> None:
        self._beginning = beginning
        self._is_recorded = is_recorded
        self._changes: list[_Change] = []

    @property
    def current(self) -> VoterSet:
        return self._changes[-1].voters if self._changes else self._beginning

    @property
    def is_recorded(self) -> bool:
        """Whether the current set is one that a leader wrote, not one that a config says."""
        return bool(self._changes) or self._is_recorded

    @property
    def last_offset(self) -> int:
        """Where the last change stands in the log, -1 if none is there."""
        return self._changes[-1].offset if self._changes else -1

    def at(self, end_offset: int) -> VoterSet | None:
        """The recorded set below an offset, for a snapshot that ends there; None if there is none yet."""
        below = [change.voters for change in self._changes if change.offset < end_offset]
        if below:
            return below[-1]
        return self._beginning if self._is_recorded else None

    def add(self, offset: int, voters: VoterSet) -> None:
        self._changes.append(_Change(offset, voters))

    def truncate(self, end_offset: int) -> None:
        self._changes = [change for change in self._changes if change.offset < end_offset]

    def restart(self, voters: VoterSet | None) -> None:
        """A snapshot took the place of the whole log; without voters in it what the config says holds again."""
        self._changes.clear()
        if voters is not None:
            self._beginning, self._is_recorded = voters, True
