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
from ottla.core.quorum.roles import Ask, Election, Follower, Leader, Unattached


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
        times: list[int | None]
        if isinstance(role, Unattached):
            times = [role.election_deadline_ms if self.is_voter else role.fetch_ms]
        elif isinstance(role, Election):
            times = [role.deadline_ms, *_times(role.asks)]
        elif isinstance(role, Follower):
            times = [role.fetch_deadline_ms, role.fetch_ms, role.election_deadline_ms]
        elif isinstance(role, Leader):
            alone = self.voters.is_sole(self.key)
            asks = {voter_id: ask for voter_id, ask in role.asks.items() if voter_id in self.voters.ids}
            times = [] if alone else [self._check_ms(role, now_ms), *_times(asks)]
        else:
            times = [role.deadline_ms]
        return min((time for time in times if time is not None), default=None)

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
            self._begin_failed(to, now_ms, self._settings.retry_backoff_ms)
        elif isinstance(request, FetchRequest) or request is None:
            self._fetch_failed(to, refused=refused, now_ms=now_ms)
        self.tick(now_ms)


def _times(asks: dict[int, Ask]) -> list[int | None]:
    return [ask.next_ms for ask in asks.values()]
