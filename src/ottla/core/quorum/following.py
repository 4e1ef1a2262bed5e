"""A follower's side: fetch, and do with the log what the leader's answer says.

One fetch is under way at a time, and its offset is what is synced here, since the leader counts it. What an answer
brings is on disk before the next fetch. An observer fetches the same way and counts for nothing.
"""

from __future__ import annotations

from ottla.core.quorum.base import FIRST_ELECTION_MS_MAX, position
from ottla.core.quorum.effects import (
    NO_LEADER,
    Append,
    FetchAnswer,
    FetchRequest,
    FetchSnapshot,
    OffsetAndEpoch,
    Position,
    Truncate,
)
from ottla.core.quorum.elections import Elections
from ottla.core.quorum.roles import Follower, Unattached
from ottla.model.errors import CorruptLogError, ErrorCode

DISCOVERY_MS = 50


class Following(Elections):
    """Fetching from a leader, and looking for one."""

    def _tick_follower(self, role: Follower, now_ms: int) -> None:
        late = now_ms >= role.fetch_deadline_ms
        called = role.election_deadline_ms is not None and now_ms >= role.election_deadline_ms
        if self.is_voter and (late or called):
            if called and role.is_successor:
                self._become_candidate(now_ms)
            else:
                self._become_prospective(now_ms)
        elif late or called:
            self._become_unattached(self.epoch, now_ms)
        elif role.fetch_ms is not None and now_ms >= role.fetch_ms:
            role.fetch_ms = None
            self._send_fetch(role.leader)

    def _tick_unattached(self, role: Unattached, now_ms: int) -> None:
        if self.is_voter:
            if now_ms >= role.election_deadline_ms:
                self._become_prospective(now_ms)
        elif role.fetch_ms is not None and now_ms >= role.fetch_ms:
            role.fetch_ms = now_ms + DISCOVERY_MS
            targets = self._known_positions()
            if targets:
                role.fetch_ms = None
                self._asked += 1
                self._send_fetch(targets[self._asked % len(targets)])

    def _known_positions(self) -> list[Position]:
        """Whom to ask for the leader."""
        voters = (position(voter) for voter in self.voters.voters if voter.id != self.key.id)
        return [*(found for found in voters if found is not None), *self._settings.bootstrap]

    def _send_fetch(self, to: Position) -> None:
        log = self._log
        if log.synced_offset < log.end_offset:
            # What stands here of an earlier role must be on disk before it is counted.
            self._effects.append(Append(self.epoch, None))
            return
        self._send(to, FetchRequest(self.epoch, self.key, log.end_offset, log.last_epoch, self.high_watermark))

    def _fetch_answered(self, to: Position, request: FetchRequest, answer: FetchAnswer, now_ms: int) -> None:
        if self._learn(answer.epoch, answer.leader_id, answer.leader, now_ms):
            if answer.epoch < self.epoch:
                self._fetch_failed(to, refused=False, now_ms=now_ms)
            return
        role = self.role
        if not isinstance(role, Follower):
            self._fetch_failed(to, refused=False, now_ms=now_ms)
        elif answer.error is not ErrorCode.NONE:
            # It does not lead any more, and knows of nobody who does.
            self._fetch_failed(to, refused=answer.leader_id == NO_LEADER, now_ms=now_ms)
        else:
            role.has_fetched = True
            role.suspects = role.is_successor = False
            role.election_deadline_ms = None
            role.fetch_deadline_ms = now_ms + self._settings.fetch_timeout_ms
            self._take(role, answer, now_ms)

    def _take(self, role: Follower, answer: FetchAnswer, now_ms: int) -> None:
        if answer.diverging is not None:
            self._effects.append(Truncate(self.epoch, self._truncation_offset(answer.diverging)))
        elif answer.snapshot is not None:
            number = self._new_number(role.leader, None)
            self._effects.append(FetchSnapshot(number, self.epoch, role.leader, answer.snapshot))
        else:
            self._leader_high_watermark = max(self._leader_high_watermark, answer.high_watermark)
            if answer.records:
                self._effects.append(Append(self.epoch, answer.records))
            else:
                self._follow_high_watermark()
                role.fetch_ms = now_ms

    def _truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        own = self._log.end_of_epoch(diverging.epoch)
        offset = min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
        if offset < self.high_watermark:
            raise CorruptLogError(
                f"the leader of epoch {self.epoch} asks to cut the metadata log at {offset}, but everything below "
                f"{self.high_watermark} is committed"
            )
        return offset

    def _follow_high_watermark(self) -> None:
        reached = min(self._leader_high_watermark, self._log.synced_offset)
        self.high_watermark = max(self.high_watermark, reached)

    def _fetch_failed(self, to: Position, *, refused: bool, now_ms: int) -> None:
        role = self.role
        if isinstance(role, Unattached):
            role.fetch_ms = now_ms + DISCOVERY_MS
        elif isinstance(role, Follower):
            role.fetch_ms = now_ms + self._settings.retry_backoff_ms
            if refused and not role.suspects:
                role.suspects = True
                role.election_deadline_ms = now_ms + self._random_below(FIRST_ELECTION_MS_MAX)

    # -- what the driver has done

    def _log_synced_as_follower(self, now_ms: int) -> None:
        role = self.role
        if isinstance(role, Follower):
            self._follow_high_watermark()
            if role.fetch_ms is None and not self._sent:
                role.fetch_ms = now_ms
        elif isinstance(role, Unattached) and role.fetch_ms is None and not self._sent:
            role.fetch_ms = now_ms

    def append_failed(self, now_ms: int) -> None:
        """What the leader sent could not be written now; it is fetched again after a while."""
        if isinstance(self.role, Follower):
            self.role.fetch_ms = now_ms + 10 * self._settings.retry_backoff_ms

    def truncated(self, now_ms: int) -> None:
        """The log was cut off, or will not be because the role has changed."""
        self.history.truncate(self._log.end_offset)
        self._log_synced_as_follower(now_ms)
        self.tick(now_ms)

    def snapshot_progress(self, now_ms: int) -> None:
        """A part of a snapshot came: the leader lives."""
        if isinstance(self.role, Follower):
            self.role.fetch_deadline_ms = now_ms + self._settings.fetch_timeout_ms

    def snapshot_installed(self, number: int, now_ms: int) -> None:
        """The log begins behind a snapshot now; `history` was restarted with what the snapshot says."""
        self._sent.pop(number, None)
        latest = self._log.latest_snapshot
        if latest is not None:
            self.high_watermark = max(self.high_watermark, latest.offset)
        self._log_synced_as_follower(now_ms)
        self.tick(now_ms)
