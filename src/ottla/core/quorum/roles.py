"""What a replica is at a moment. A role holds what only it needs; leaving it forgets that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from ottla.core.quorum.effects import Position
from ottla.core.quorum.progress import Progress


@dataclass(slots=True)
class Ask:
    """A request to one voter: when to send it (again), None while it is under way or answered."""

    next_ms: int | None
    failures: int = 0
    """How often in a row nobody was there to hear a leader."""


@dataclass(slots=True)
class Unattached:
    """Knows no leader of its epoch."""

    name: ClassVar[str] = "unattached"
    election_deadline_ms: int
    fetch_ms: int | None = 0
    """When an observer asks somebody for the leader next; None while it asks."""


@dataclass(slots=True)
class Election:
    """Gathers votes: for real, or, before that, to find out whether it would get them."""

    pre_vote: bool
    deadline_ms: int
    retries: int
    asks: dict[int, Ask]
    granted: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    unreachable: list[int] = field(default_factory=list)
    """Those that cannot be asked. If they are needed there is no reason to wait for long."""

    @property
    def name(self) -> str:
        return "prospective" if self.pre_vote else "candidate"


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of its epoch; an observer does so, too."""

    name: ClassVar[str] = "follower"
    leader: Position
    fetch_deadline_ms: int
    fetch_ms: int | None = 0
    """When to fetch next; None while a fetch, or what it brought, is under way."""
    has_fetched: bool = False
    suspects: bool = False
    """The leader is gone as far as this replica can see: a pre-vote of others is granted."""
    election_deadline_ms: int | None = None
    is_successor: bool = False


@dataclass(slots=True)
class Leader:
    """Leads its epoch, which begins at `epoch_start_offset`."""

    name: ClassVar[str] = "leader"
    epoch_start_offset: int
    progress: Progress
    asks: dict[int, Ask] = field(default_factory=dict)
    voters_pending: bool = False
    """A change of voters was handed out to be appended."""
    is_established: bool = False
    """An entry of this epoch is committed, and so are the voters that held when it was."""


@dataclass(slots=True)
class Resigned:
    """Led this epoch and does not any more; waits for another."""

    name: ClassVar[str] = "resigned"
    deadline_ms: int


Role: TypeAlias = Unattached | Election | Follower | Leader | Resigned
