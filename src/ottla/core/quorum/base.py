"""What every role shares: the epoch, the vote, the high watermark, and the ways from one role to another.

What an editor must keep true. Each change of epoch, vote or leader goes through `_set_state`, which hands out a
StoreState: the driver lets nothing leave that was said after it before it is on disk. A change of role forgets all
requests under way: their answers belong to what this replica was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from ottla.core.quorum.effects import (
    NO_LEADER,
    Effect,
    ElectionState,
    LogView,
    Position,
    QuorumSettings,
    Request,
    Send,
    StoreState,
)
from ottla.core.quorum.roles import Election, Follower, Leader, Resigned, Role, Unattached
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet

FIRST_ELECTION_MS_MAX = 100
"""A voter that starts, or sees that its leader is gone, asks for votes within this time."""


class QuorumBase(ABC):
    """The state of a replica, and how it moves between roles."""

    def __init__(
        self,
        settings: QuorumSettings,
        log: LogView,
        history: VoterHistory,
        state: ElectionState,
        random_below: Callable[[int], int],
        now_ms: int,
    ) -> None:
        self._settings = settings
        self._log = log
        self.history = history
        self._random_below = random_below
        self._effects: list[Effect] = []
        self._sent: dict[int, tuple[Position, Request | None]] = {}
        self._number = 0
        self._asked = 0
        self.state_version = 0
        """Counts the states that were handed out to be stored."""
        self._stored_version = 0
        self.state = ElectionState(state.epoch, state.voted, NO_LEADER)
        self._elected = state.leader_id
        """Who was elected in this epoch, as far as this replica ever knew, whether or not it leads now."""
        self.high_watermark = log.latest_snapshot.offset if log.latest_snapshot is not None else 0
        self._leader_high_watermark = -1
        first = now_ms if history.current.is_sole(settings.key) else now_ms + random_below(FIRST_ELECTION_MS_MAX)
        self.role: Role = Unattached(first)

    # -- what others may know

    @property
    def key(self) -> ReplicaKey:
        return self._settings.key

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        return self.state.leader_id

    @property
    def voters(self) -> VoterSet:
        return self.history.current

    @property
    def is_voter(self) -> bool:
        return self._settings.may_vote and self.voters.includes(self.key)

    @property
    def leader(self) -> Position | None:
        """Where the leader is reached; None if there is none, or it is this replica and has no address."""
        if isinstance(self.role, Follower):
            return self.role.leader
        if isinstance(self.role, Leader):
            own = self._settings.endpoints[:1]
            return Position(self.key.id, own[0].host, own[0].port) if own else None
        return None

    def is_following(self, epoch: int) -> bool:
        return isinstance(self.role, Follower) and self.epoch == epoch

    def drain(self) -> list[Effect]:
        """What is to be done, in this order. Called after each event."""
        effects, self._effects = self._effects, []
        return effects

    # -- sending

    def _send(self, to: Position, request: Request) -> None:
        self._effects.append(Send(self._new_number(to, request), to, request))

    def _new_number(self, to: Position, request: Request | None) -> int:
        self._number += 1
        self._sent[self._number] = (to, request)
        return self._number

    def _position_of(self, node_id: int, given: Position | None = None) -> Position | None:
        """Where a node is reached, by what an answer said or by the voters."""
        if given is not None and given.node_id == node_id and given.port > 0:
            return given
        voter = self.voters.find(node_id)
        return None if voter is None else position(voter)

    # -- from role to role

    def _set_state(self, epoch: int, *, leader_id: int = NO_LEADER, voted: ReplicaKey | None = None) -> None:
        if voted is None and epoch == self.epoch:
            voted = self.state.voted
        state = ElectionState(epoch, voted, leader_id)
        if leader_id != NO_LEADER or epoch != self.epoch:
            self._elected = leader_id
        if state != self.state:
            self.state = state
            self.state_version += 1
            # Apache Kafka, started on what is stored, would ask for votes again in an epoch that it has led.
            self._effects.append(StoreState(self.state_version, state._replace(leader_id=self._elected)))

    def _change_role(self, role: Role) -> None:
        self.role = role
        self._sent.clear()
        self._leader_high_watermark = -1

    def _become_unattached(self, epoch: int, now_ms: int) -> None:
        self._set_state(epoch)
        self._change_role(Unattached(now_ms + self._election_timeout_ms(), now_ms))

    def _become_follower(self, epoch: int, leader: Position, now_ms: int) -> None:
        self._set_state(epoch, leader_id=leader.node_id)
        self._change_role(Follower(leader, now_ms + self._settings.fetch_timeout_ms, now_ms))

    def _become_resigned(self, now_ms: int) -> None:
        self._set_state(self.epoch)
        self._change_role(Resigned(now_ms + self._election_timeout_ms()))

    def _election_timeout_ms(self) -> int:
        timeout_ms = self._settings.election_timeout_ms
        return timeout_ms + self._random_below(timeout_ms + 1)

    def _learn(self, epoch: int, leader_id: int, given: Position | None, now_ms: int) -> bool:
        """Take in what another replica says of the epoch and its leader; True if nothing else in its answer counts."""
        if epoch < self.epoch:
            return True
        leader = self._position_of(leader_id, given) if leader_id not in (NO_LEADER, self.key.id) else None
        if epoch > self.epoch:
            if leader is not None:
                self._become_follower(epoch, leader, now_ms)
            else:
                self._become_unattached(epoch, now_ms)
            return True
        if leader is not None and isinstance(self.role, Unattached | Election | Resigned):
            self._become_follower(epoch, leader, now_ms)
            return True
        return False

    @abstractmethod
    def tick(self, now_ms: int) -> None:
        """Do what is due, in whatever role."""


def position(voter: Voter) -> Position | None:
    """Where a voter is reached."""
    if not voter.endpoints:
        return None
    endpoint = voter.endpoints[0]
    return Position(voter.id, endpoint.host, endpoint.port)
