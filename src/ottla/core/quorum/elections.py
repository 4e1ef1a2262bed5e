"""Elections: a pre-vote, then a vote, then a leader.

A pre-vote changes nothing: it tells a replica whether others would elect it, so one that was cut off does not end a
leader's epoch when it comes back. A replica that hears from its leader grants none. A vote is for one candidate an
epoch, to one whose log is not behind, and is on disk before it is answered; that goes for the candidate's own vote too,
which counts only then.
"""

from __future__ import annotations

from ottla.core.quorum.base import FIRST_ELECTION_MS_MAX, QuorumBase, position
from ottla.core.quorum.effects import (
    NO_LEADER,
    BeginEpoch,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    Position,
    VoteAnswer,
    VoteRequest,
)
from ottla.core.quorum.progress import Progress
from ottla.core.quorum.roles import Ask, Election, Follower, Leader, Unattached
from ottla.core.quorum.voters import ReplicaKey
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID

PRE_VOTE_BACKOFF_MS = 50
CANDIDATE_BACKOFF_MS = 100
RETRIES_MAX = 10


class Elections(QuorumBase):
    """Votes, given and asked for."""

    # -- asked by others

    def vote_requested(self, request: VoteRequest, now_ms: int) -> VoteAnswer:
        """Another replica wants to lead. The answer may leave when the state is stored."""
        if not self._settings.may_vote or not self._is_meant(request.voter):
            return self._vote_answer(ErrorCode.INVALID_VOTER_KEY, granted=False)
        if request.epoch < self.epoch:
            return self._vote_answer(ErrorCode.FENCED_LEADER_EPOCH, granted=False)
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        granted = self._would_grant(request)
        if granted and not request.pre_vote:
            self._set_state(self.epoch, voted=request.candidate)
            self._change_role(Unattached(now_ms + self._election_timeout_ms(), now_ms))
        return self._vote_answer(ErrorCode.NONE, granted=granted)

    def _is_meant(self, voter: ReplicaKey) -> bool:
        """Whether a request is for this very replica, and not for what stood in its place before."""
        return voter.id in (self.key.id, -1) and voter.directory_id in (self.key.directory_id, ZERO_UUID)

    def _would_grant(self, request: VoteRequest) -> bool:
        if (request.last_epoch, request.last_offset) < (self._log.last_epoch, self._log.end_offset):
            return False
        role = self.role
        if request.pre_vote:
            return not (isinstance(role, Leader) or (isinstance(role, Follower) and self._hears(role)))
        if self.leader_id != NO_LEADER or isinstance(role, Leader):
            return False
        return self.state.voted is None or self.state.voted == request.candidate

    @staticmethod
    def _hears(role: Follower) -> bool:
        return role.has_fetched and not role.suspects

    def _vote_answer(self, error: ErrorCode, *, granted: bool) -> VoteAnswer:
        return VoteAnswer(error, self.epoch, self.leader_id, granted, self.leader)

    # -- asking others

    def _become_prospective(self, now_ms: int, retries: int = 0) -> None:
        if self.voters.is_sole(self.key):
            self._become_candidate(now_ms, retries)
            return
        self._set_state(self.epoch)
        self._begin_election(now_ms, retries, pre_vote=True)

    def _become_candidate(self, now_ms: int, retries: int = 0) -> None:
        self._set_state(self.epoch + 1, voted=self.key)
        self._begin_election(now_ms, retries, pre_vote=False)

    def _begin_election(self, now_ms: int, retries: int, *, pre_vote: bool) -> None:
        others = [voter_id for voter_id in self.voters.ids if voter_id != self.key.id]
        asks = {voter_id: Ask(now_ms) for voter_id in others}
        election = Election(pre_vote, now_ms + self._election_timeout_ms(), retries, asks)
        self._change_role(election)
        if pre_vote:
            election.granted.append(self.key.id)
        self._tick_election(election, now_ms)

    def _tick_election(self, election: Election, now_ms: int) -> None:
        if now_ms >= election.deadline_ms:
            if not self.is_voter:
                self._become_unattached(self.epoch, now_ms)
            else:
                self._become_prospective(now_ms, min(election.retries + 1, RETRIES_MAX))
            return
        for voter_id, ask in election.asks.items():
            if ask.next_ms is not None and now_ms >= ask.next_ms:
                self._ask_for_vote(election, voter_id, ask, now_ms)

    def _ask_for_vote(self, election: Election, voter_id: int, ask: Ask, now_ms: int) -> None:
        voter = self.voters.find(voter_id)
        to = None if voter is None else position(voter)
        if voter is None or to is None:
            ask.next_ms = election.deadline_ms
            return
        ask.next_ms = None
        request = VoteRequest(
            self.epoch, self.key, voter.key, self._log.end_offset, self._log.last_epoch, election.pre_vote
        )
        self._send(to, request)

    def _own_vote_stored(self, now_ms: int) -> None:
        """The state is on disk: if it holds a vote for itself, that counts now."""
        election = self.role
        if isinstance(election, Election) and not election.pre_vote and self.key.id not in election.granted:
            election.granted.append(self.key.id)
            self._count(election, now_ms)

    def _vote_answered(self, to: Position, request: VoteRequest, answer: VoteAnswer, now_ms: int) -> None:
        if answer.epoch < self.epoch:
            # Refused by one that stands in the voter's place and knows nothing yet.
            self._note_vote(to.node_id, False, now_ms)
            return
        granted = answer.granted and answer.error is ErrorCode.NONE and answer.epoch == self.epoch
        # One that grants a pre-vote does not believe in the leader that it still names.
        if granted or not self._learn(answer.epoch, answer.leader_id, answer.leader, now_ms):
            self._note_vote(to.node_id, granted, now_ms)

    def _note_vote(self, voter_id: int, granted: bool, now_ms: int) -> None:
        election = self.role
        if not isinstance(election, Election):
            return
        said = election.granted if granted else election.rejected
        if voter_id not in election.granted and voter_id not in election.rejected:
            said.append(voter_id)
        if voter_id in election.unreachable:
            election.unreachable.remove(voter_id)
        self._count(election, now_ms)

    def _count(self, election: Election, now_ms: int) -> None:
        if self.voters.wins(election.granted):
            if election.pre_vote:
                self._become_candidate(now_ms, election.retries)
            else:
                self._become_leader(election, now_ms)
        elif not self.voters.can_win([*election.rejected, *election.unreachable]):
            if election.pre_vote:
                wait_ms = PRE_VOTE_BACKOFF_MS + self._random_below(2 * PRE_VOTE_BACKOFF_MS)
            else:
                most = min(self._settings.election_backoff_ms_max, CANDIDATE_BACKOFF_MS << election.retries)
                wait_ms = self._random_below(max(most, 1))
            election.deadline_ms = min(election.deadline_ms, now_ms + wait_ms)

    def _vote_failed(self, to: Position, now_ms: int) -> None:
        election = self.role
        if isinstance(election, Election) and to.node_id in election.asks:
            election.asks[to.node_id].next_ms = now_ms + self._settings.retry_backoff_ms
            if to.node_id not in election.unreachable:
                election.unreachable.append(to.node_id)
                self._count(election, now_ms)

    def _become_leader(self, election: Election, now_ms: int) -> None:
        granting = tuple(sorted(election.granted))
        self._set_state(self.epoch, leader_id=self.key.id)
        record_voters = self.voters.is_known and not self.history.is_recorded
        asks = {voter_id: Ask(now_ms) for voter_id in election.asks}
        self._change_role(Leader(self._log.end_offset, Progress(now_ms), asks, record_voters))
        self._effects.append(BeginEpoch(self.epoch, self.voters, granting, record_voters))

    # -- told by a leader

    def begin_epoch_requested(self, request: BeginEpochRequest, now_ms: int) -> EpochAnswer:
        """A leader says that it leads."""
        if request.epoch < self.epoch:
            return self._epoch_answer(ErrorCode.FENCED_LEADER_EPOCH)
        given = None
        if request.endpoints:
            given = Position(request.leader_id, request.endpoints[0].host, request.endpoints[0].port)
        if request.epoch == self.epoch and self.leader_id not in (NO_LEADER, request.leader_id):
            return self._epoch_answer(ErrorCode.INVALID_REQUEST)
        self._learn(request.epoch, request.leader_id, given, now_ms)
        return self._epoch_answer(ErrorCode.NONE if self._is_meant(request.voter) else ErrorCode.INVALID_VOTER_KEY)

    def end_epoch_requested(self, request: EndEpochRequest, now_ms: int) -> EpochAnswer:
        """A leader lets go: the first of the successors that it names tries at once, the others a little later."""
        if request.epoch < self.epoch:
            return self._epoch_answer(ErrorCode.FENCED_LEADER_EPOCH)
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        role = self.role
        ids = [successor.id for successor in request.successors]
        place = ids.index(self.key.id) if self.key.id in ids else len(ids)
        delay_ms = place * FIRST_ELECTION_MS_MAX
        if isinstance(role, Follower) and role.leader.node_id == request.leader_id:
            role.suspects = True
            role.is_successor = place == 0
            role.election_deadline_ms = now_ms + delay_ms
        elif isinstance(role, Unattached):
            role.election_deadline_ms = min(role.election_deadline_ms, now_ms + delay_ms)
        return self._epoch_answer(ErrorCode.NONE)

    def _epoch_answer(self, error: ErrorCode) -> EpochAnswer:
        return EpochAnswer(error, self.epoch, self.leader_id, self.leader)
