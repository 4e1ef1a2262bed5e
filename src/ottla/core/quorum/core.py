"""One replica of the metadata quorum: events and the time in, effects out.

Theory of operation. The driver calls a method for each thing that happens (a request, an answer, a sync, the time of
`next_deadline_ms`), then carries out what `drain` gives, in order. Answers to requests are returned by the methods
themselves. Whatever is said to others after a StoreState waits until that is on disk (`state_stored`).

`elections` decides who leads, `following` what a follower does with its log, `leading` what is committed and who votes;
`base` holds what they share. They are one state machine in four files.
"""

from __future__ import annotations

from ottla.core.quorum.effects import (
    Answer,
    BeginEpochRequest,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    VoteAnswer,
    VoteRequest,
)
from ottla.core.quorum.leading import Leading
from ottla.core.quorum.roles import Election, Follower, Leader, Unattached


class QuorumCore(Leading):
    """The whole state machine."""

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        role = self.role
        if isinstance(role, Unattached):
            self._tick_unattached(role, now_ms)
        elif isinstance(role, Election):
            self._tick_election(role, now_ms)
        elif isinstance(role, Follower):
            self._tick_follower(role, now_ms)
        elif isinstance(role, Leader):
            self._tick_leader(role, now_ms)
        elif now_ms >= role.deadline_ms:
            self._become_unattached(self.epoch, now_ms)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When to call `tick` again at the latest; None where only an event can change anything."""
        role = self.role
        if isinstance(role, Follower):
            return _earliest(role.fetch_deadline_ms, [role.fetch_ms, role.election_deadline_ms])
        if isinstance(role, Leader):
            voters = self.voters
            if voters.is_sole(self.key):
                return None
            asks = [ask.next_ms for voter_id, ask in role.asks.items() if voter_id in voters.ids]
            return _earliest(self._check_ms(role, now_ms), asks)
        if isinstance(role, Unattached):
            return role.election_deadline_ms if self.is_voter else role.fetch_ms
        if isinstance(role, Election):
            return _earliest(role.deadline_ms, [ask.next_ms for ask in role.asks.values()])
        return role.deadline_ms

    def state_stored(self, version: int, now_ms: int) -> None:
        """The state of that version, or a later one, is on disk."""
        self._stored_version = max(self._stored_version, version)
        if self._stored_version == self.state_version:
            self._own_vote_stored(now_ms)

    def appended(self, now_ms: int) -> None:
        """The leader has appended to its log."""
        self.tick(now_ms)

    def synced(self, now_ms: int) -> None:
        """More of the log is on disk."""
        if isinstance(self.role, Leader):
            self._advance(now_ms)
        else:
            self._log_synced_as_follower(now_ms)
        self.tick(now_ms)

    def answered(self, number: int, answer: Answer, now_ms: int) -> None:
        """The answer to a request that was sent. One that came too late counts for nothing."""
        sent = self._sent.pop(number, None)
        if sent is None:
            return
        to, request = sent
        if isinstance(request, VoteRequest) and isinstance(answer, VoteAnswer):
            self._vote_answered(to, request, answer, now_ms)
        elif isinstance(request, FetchRequest) and isinstance(answer, FetchAnswer):
            self._fetch_answered(to, request, answer, now_ms)
        elif isinstance(request, BeginEpochRequest) and isinstance(answer, EpochAnswer):
            self._begin_answered(to, answer, now_ms)
        elif isinstance(answer, EpochAnswer):
            self._learn(answer.epoch, answer.leader_id, answer.leader, now_ms)
        self.tick(now_ms)

    def failed(self, number: int, now_ms: int, *, refused: bool = False) -> None:
        """A request that was sent got no answer; `refused` if nobody listens there."""
        sent = self._sent.pop(number, None)
        if sent is None:
            return
        to, request = sent
        if isinstance(request, VoteRequest):
            self._vote_failed(to, now_ms)
        elif isinstance(request, BeginEpochRequest):
            self._begin_failed(to, now_ms)
        elif isinstance(request, FetchRequest) or request is None:
            self._fetch_failed(to, refused=refused, now_ms=now_ms)
        self.tick(now_ms)


def _earliest(time_ms: int, others: list[int | None]) -> int:
    for other in others:
        if other is not None and other < time_ms:
            time_ms = other
    return time_ms
