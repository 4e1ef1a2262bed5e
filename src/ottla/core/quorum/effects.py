"""What goes into the quorum's state machine and what comes out of it, besides the time.

Requests and answers are those of the protocol without their wrapping. The driver carries them, and whatever an effect
tells it to do to its disk; it reports back through the methods of `QuorumCore`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ottla.core.quorum.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID

NO_LEADER: Final = -1
NO_REPLICA: Final = ReplicaKey(-1, ZERO_UUID)


class OffsetAndEpoch(NamedTuple):
    """An end in the log: the first offset that is not in it, and the epoch of the last one that is."""

    offset: int
    epoch: int


class LogView(Protocol):
    """The log as the state machine sees it. An epoch is that of the leader that wrote an entry."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last entry, of the snapshot if there is no entry, 0 if there is nothing."""

    @property
    def synced_offset(self) -> int:
        """Everything below it would survive a crash."""

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot at the start of the log; None if the log starts at 0."""

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch in the log that is not beyond `epoch`, and where it ends."""


class Position(NamedTuple):
    """Where a node is reached; `node_id` -1 if only the address is known."""

    node_id: int
    host: str
    port: int


class VoteRequest(NamedTuple):
    """Asks one voter for its vote, or, as a pre-vote, whether it would give it."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_offset: int
    last_epoch: int
    pre_vote: bool


class VoteAnswer(NamedTuple):
    """`epoch` and `leader_id` are those of the voter."""

    error: ErrorCode
    epoch: int
    leader_id: int
    granted: bool
    leader: Position | None = None


class BeginEpochRequest(NamedTuple):
    """A leader tells a voter of itself."""

    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]


class EndEpochRequest(NamedTuple):
    """A leader lets go; the first successor tries at once."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]
    endpoints: tuple[VoterEndpoint, ...]


class EpochAnswer(NamedTuple):
    """To a beginning or an end."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader: Position | None = None


class FetchRequest(NamedTuple):
    """Asks for the log after `fetch_offset`, below which everything is synced here."""

    epoch: int
    replica: ReplicaKey
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int


class FetchAnswer(NamedTuple):
    """One of: an error, where the logs part, a snapshot to fetch first, or records."""

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records: Any = None
    """Whole batches as the driver keeps them; None or empty if there is nothing new."""
    leader: Position | None = None


Request: TypeAlias = VoteRequest | BeginEpochRequest | EndEpochRequest | FetchRequest
Answer: TypeAlias = VoteAnswer | EpochAnswer | FetchAnswer


class ElectionState(NamedTuple):
    """What a replica must not forget."""

    epoch: int = 0
    voted: ReplicaKey | None = None
    leader_id: int = NO_LEADER


class StoreState(NamedTuple):
    """Bring this to disk, then call `state_stored`. Nothing that comes after it may leave before."""

    version: int
    state: ElectionState


class Send(NamedTuple):
    """Send a request; call `answered` or `failed` with the number."""

    number: int
    to: Position
    request: Request


class Append(NamedTuple):
    """Append the records of the leader's answer and sync them, then call `synced`."""

    epoch: int
    records: Any


class Truncate(NamedTuple):
    """Cut the log off at an offset, if the epoch is still this; then call `truncated`."""

    epoch: int
    offset: int


class FetchSnapshot(NamedTuple):
    """Fetch a snapshot from the leader and begin the log anew behind it; call `snapshot_installed`, or `failed`."""

    number: int
    epoch: int
    leader: Position
    snapshot: OffsetAndEpoch


class BeginEpoch(NamedTuple):
    """This replica leads: append the record that says so, with the voters if they stand in no record yet."""

    epoch: int
    voters: VoterSet
    granting: tuple[int, ...]
    record_voters: bool


class AppendVoters(NamedTuple):
    """Append a record with the voters from here on; then call `voters_appended`."""

    epoch: int
    voters: VoterSet


Effect: TypeAlias = StoreState | Send | Append | Truncate | FetchSnapshot | BeginEpoch | AppendVoters


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """Times, and who this replica is."""

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    may_vote: bool = True
    """Whether it is a controller at all."""
    bootstrap: tuple[Position, ...] = ()
    """Whom to ask for the leader besides the voters."""
    election_timeout_ms: int = 1000
    election_backoff_ms_max: int = 1000
    fetch_timeout_ms: int = 2000
    retry_backoff_ms: int = 20

    @property
    def as_voter(self) -> Voter:
        return Voter(self.key.id, self.key.directory_id, self.endpoints)
