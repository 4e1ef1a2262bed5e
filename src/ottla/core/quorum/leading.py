"""A leader's side: what followers may read, what is committed, and who votes.

The high watermark is what enough voters have synced, the leader among them, once that reaches an entry of the leader's
own epoch: what earlier leaders left is committed only through it. A change of voters counts from the moment it stands
in the log, and only one is under way at a time: two majorities that decide at the same moment always share a voter.

A quorum that is being founded: until the directory of every voter is known, every voter must have an entry. The leader
learns the directories from fetches and records them before anything else is written.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.core.quorum.base import position
from ottla.core.quorum.effects import (
    NO_LEADER,
    AppendVoters,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Position,
)
from ottla.core.quorum.following import Following
from ottla.core.quorum.roles import Ask, Leader
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.model.errors import ApiError, ErrorCode

FAILURES_COUNTED_MAX = 10


class Leading(Following):
    """What only a leader does."""

    @property
    def is_established(self) -> bool:
        """Whether this replica leads, its epoch has begun in committed entries, and the voters are recorded."""
        return isinstance(self.role, Leader) and self.role.is_established

    @property
    def _voters_settled(self) -> bool:
        """Whether the voters that count now are committed."""
        return self.is_established and self.high_watermark > self.history.last_offset

    # -- fetches

    def fetch_requested(self, request: FetchRequest, now_ms: int) -> FetchAnswer:
        """The answer without records: where it has no error, divergence or snapshot, the driver adds them."""
        role = self.role
        if not isinstance(role, Leader) or request.epoch != self.epoch:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if request.epoch != self.epoch:
                older = request.epoch < self.epoch
                error = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            return self._fetch_answer(error)
        if request.replica.id == self.key.id:
            return self._fetch_answer(ErrorCode.INVALID_REQUEST)
        differs = self._difference(request)
        if differs is not None:
            return differs
        if request.replica.id < 0:
            return self._fetch_answer(ErrorCode.NONE)
        role.progress.fetched(request.replica, request.fetch_offset, self._log.end_offset, now_ms)
        if not self.voters.is_known:
            self._found(role)
        self._advance(now_ms)
        return self._fetch_answer(ErrorCode.NONE)

    def snapshot_requested(self, replica: ReplicaKey, epoch: int) -> ErrorCode:
        """Whether a replica may read a snapshot here."""
        if not isinstance(self.role, Leader) or epoch != self.epoch:
            return self.fetch_requested(FetchRequest(epoch, replica, -1, -1, -1), 0).error
        return ErrorCode.NONE

    def replica_lives(self, replica: ReplicaKey, now_ms: int) -> None:
        """A voter that fetches a snapshot is heard as well."""
        if isinstance(self.role, Leader):
            found = self.role.progress.find(replica)
            if found is not None:
                found.fetched_ms = now_ms

    def _fetch_answer(self, error: ErrorCode) -> FetchAnswer:
        return FetchAnswer(error, self.epoch, self.leader_id, self.high_watermark, leader=self.leader)

    def _difference(self, request: FetchRequest) -> FetchAnswer | None:
        """What a replica must do before it can go on from where it is; None if its log is a part of this one."""
        log, answer = self._log, self._fetch_answer(ErrorCode.NONE)
        offset, epoch = request.fetch_offset, request.last_fetched_epoch
        start = log.start_snapshot
        if start is not None and (
            offset < log.start_offset or (offset == log.start_offset and epoch != start.epoch) or (epoch < start.epoch)
        ):
            return answer._replace(snapshot=log.latest_snapshot)
        end = log.end_of_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return answer._replace(diverging=end)
        return None

    # -- what is committed

    def _advance(self, now_ms: int) -> None:
        role = self.role
        if not isinstance(role, Leader):
            return
        voters, key = self.voters, self.key
        votes = voters.includes(key)
        ends = role.progress.ends(voters)
        ends.pop(key.id, None)
        if votes:
            ends[key.id] = self._log.synced_offset
        agreed = voters.agreed(ends)
        if agreed > role.epoch_start_offset:
            self.high_watermark = max(self.high_watermark, agreed)
            if self.history.is_recorded and self.high_watermark > self.history.last_offset:
                role.is_established = True
        if not votes and self._voters_settled:
            self.resign(now_ms)

    def _tick_leader(self, role: Leader, now_ms: int) -> None:
        if self._majority_lost(role, now_ms):
            self.resign(now_ms)
            return
        role.progress.forget_idle(self.voters, now_ms)
        again_ms = now_ms + max(self._settings.fetch_timeout_ms // 2, 1)
        for voter in self.voters.voters:
            if voter.id == self.key.id:
                continue
            ask = role.asks.setdefault(voter.id, Ask(now_ms))
            if ask.next_ms is None or now_ms < ask.next_ms:
                continue
            replica, to = role.progress.of(voter), position(voter)
            ask.next_ms = again_ms
            recent = replica is not None and replica.fetched_ms + self._settings.fetch_timeout_ms // 2 > now_ms
            if to is not None and not recent:
                ask.next_ms = None
                self._send(to, BeginEpochRequest(self.epoch, self.key.id, voter.key, self._settings.endpoints))
        self._renew_own_endpoints(role)

    def _majority_lost(self, role: Leader, now_ms: int) -> bool:
        return self._check_ms(role, now_ms) <= now_ms

    def _check_ms(self, role: Leader, now_ms: int) -> int:
        """When too few voters have been heard for too long, if nothing is heard any more."""
        own, heard_ms = self.key.id, role.progress.heard_ms
        heard = [now_ms if voter.id == own else heard_ms(voter) for voter in self.voters.voters]
        heard.sort(reverse=True)
        needed = len(heard) // 2 + 1
        return heard[needed - 1] + self._settings.fetch_timeout_ms * 3 // 2 if heard else now_ms

    def _begin_answered(self, to: Position, answer: EpochAnswer, now_ms: int) -> None:
        if not self._learn(answer.epoch, answer.leader_id, answer.leader, now_ms) or answer.epoch < self.epoch:
            ask = self.role.asks.get(to.node_id) if isinstance(self.role, Leader) else None
            if ask is not None:
                ask.next_ms, ask.failures = now_ms + self._settings.fetch_timeout_ms // 2, 0

    def _begin_failed(self, to: Position, now_ms: int) -> None:
        """Soon at first, then less and less often: one that is down asks for the leader itself when it is back."""
        ask = self.role.asks.get(to.node_id) if isinstance(self.role, Leader) else None
        if ask is not None:
            wait_ms = self._settings.retry_backoff_ms << min(ask.failures, FAILURES_COUNTED_MAX)
            ask.next_ms = now_ms + min(wait_ms, max(self._settings.fetch_timeout_ms // 2, 1))
            ask.failures += 1

    def resign(self, now_ms: int) -> None:
        """Let go of the lead, and say so to those who may take it."""
        role = self.role
        if not isinstance(role, Leader):
            return
        others = [voter for voter in self.voters.voters if voter.id != self.key.id]
        ends = role.progress.ends(self.voters)
        others.sort(key=lambda voter: (-ends.get(voter.id, -1), voter.id))
        self._become_resigned(now_ms)
        successors = tuple(voter.key for voter in others)
        for voter in others:
            if (to := position(voter)) is not None:
                self._send(to, EndEpochRequest(self.epoch, self.key.id, successors, self._settings.endpoints))

    # -- who votes

    def _found(self, role: Leader) -> None:
        """Record the directories of the first voters, as soon as all are known."""
        directories = role.progress.directories(self.voters) | {self.key.id: self.key.directory_id}
        voters = self.voters.with_directories(directories)
        if voters.is_known and not role.voters_pending:
            self._append_voters(role, voters)

    def _append_voters(self, role: Leader, voters: VoterSet) -> None:
        role.voters_pending = True
        self._effects.append(AppendVoters(self.epoch, voters))

    def _renew_own_endpoints(self, role: Leader) -> None:
        own = self.voters.find(self.key.id)
        stale = own is not None and self._settings.endpoints and own.endpoints != self._settings.endpoints
        if stale and self._voters_settled and not role.voters_pending:
            self._append_voters(role, self.voters.with_voter(self._settings.as_voter))

    def listens_at(self, endpoints: tuple[VoterEndpoint, ...], now_ms: int) -> None:
        """This replica is reached elsewhere than it thought; a leader records that, others are told by the driver."""
        self._settings = replace(self._settings, endpoints=endpoints)
        self.tick(now_ms)

    def voters_appended(self, offset: int, voters: VoterSet, now_ms: int) -> None:
        """A record with voters stands in the log at `offset`, and counts from now on."""
        self.history.add(offset, voters)
        if isinstance(self.role, Leader):
            self.role.voters_pending = False
            self._advance(now_ms)

    def voters_not_appended(self) -> None:
        """The record could not be written; the log is as it was."""
        if isinstance(self.role, Leader):
            self.role.voters_pending = False

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether a replica follows closely enough to become a voter."""
        found = self.role.progress.find(key) if isinstance(self.role, Leader) else None
        return (
            found is not None
            and found.fetched_ms + self._settings.fetch_timeout_ms > now_ms
            and found.end_offset >= self.high_watermark
        )

    def check_may_change(self) -> Leader:
        """The role, if voters may be changed now; ApiError if not."""
        role = self.role
        if not isinstance(role, Leader):
            where = "" if self.leader_id == NO_LEADER else f"; node {self.leader_id} does"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this node does not lead the quorum{where}")
        if not self._voters_settled or role.voters_pending:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way; try again")
        return role

    def add_voter(self, voter: Voter, now_ms: int) -> None:
        """Begin to add a voter. ApiError if that cannot be."""
        role = self.check_may_change()
        if (found := self.voters.find(voter.id)) is not None:
            raise ApiError(
                ErrorCode.DUPLICATE_VOTER, f"voter {voter.id} is there already, with directory {found.directory_id}"
            )
        if not self.is_caught_up(voter.key, now_ms):
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"node {voter.id} does not follow the metadata log closely enough yet"
            )
        self._append_voters(role, self.voters.with_voter(voter))

    def remove_voter(self, key: ReplicaKey) -> None:
        """Begin to remove a voter. ApiError if that cannot be."""
        role = self.check_may_change()
        self._check_voter(key)
        if len(self.voters.voters) == 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"voter {key.id} is the last one")
        self._append_voters(role, self.voters.without(key.id))

    def update_voter(self, voter: Voter) -> bool:
        """Begin to change where a voter listens; False if nothing differs. ApiError if that cannot be."""
        role = self.check_may_change()
        self._check_voter(voter.key)
        if self.voters.find(voter.id) == voter:
            return False
        self._append_voters(role, self.voters.with_voter(voter))
        return True

    def _check_voter(self, key: ReplicaKey) -> None:
        found = self.voters.find(key.id)
        if found is None or found.directory_id != key.directory_id:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {key.id} with directory {key.directory_id} is no voter")
