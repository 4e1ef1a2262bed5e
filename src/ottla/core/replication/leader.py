"""What the leader of a replicated partition knows of its followers, and what follows from it.

Theory of operation. Followers fetch, and a fetch at an offset says that the follower has everything below it. The high
watermark is what every replica in the ISR has; it is what consumers may see and what acks=all waits for. The ISR is the
controller's: the leader asks for another one (`proposal`) when a follower has lagged for too long or has caught up, and
until the answer is known both the old and the new one count (`asked`), so that no answer can be a surprise.

A follower that is about to catch up is waited for, although it is not in the ISR yet: under load it would never reach a
high watermark that moves with each append. It is waited for while it is eligible and chases.

What an editor must keep true:
- The high watermark never goes back, and when it moves every replica that is in the ISR, or may be, has what it covers.
- It does not move while fewer replicas are in sync than `min_insync`: the controller counts on it that who left the
  ISR then (the eligible leader replicas) misses nothing committed.
- A follower counts in the life (broker epoch) and in the leader epoch that it fetched in. A new leader epoch is a new
  `LeaderReplication`; a fetch of an older life is refused.
- A follower joins the ISR only when it has the high watermark and the start of the leader's epoch: below that start it
  may hold, and the new leader may not yet see as committed, what an older leader acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.model.errors import ApiError, ErrorCode

NOT_FETCHED: Final = -1
"""The end of a follower that has not fetched in this leader epoch: nothing is known of what it has."""
CHASE_MS_MAX: Final = 1_000
"""A follower outside the ISR that has not fetched for so long is not waited for."""


class Follower:
    """One other replica, as its fetches show it."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "fetch_ms",
        "id",
        "leader_end_offset",
        "log_start_offset",
    )

    def __init__(self, follower_id: int, caught_up_ms: int) -> None:
        self.id = follower_id
        self.broker_epoch = -1
        self.end_offset = NOT_FETCHED
        self.log_start_offset = NOT_FETCHED
        self.fetch_ms = 0
        self.leader_end_offset = 0
        """Where the leader's log ended at the last fetch: who asks for that next had caught up then."""
        self.caught_up_ms = caught_up_ms


class LeaderReplication:
    """The progress of one partition's followers in one leader epoch."""

    __slots__ = (
        "_counted",
        "_is_eligible",
        "_lag_ms_max",
        "_outside",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "isr",
        "leader_id",
        "min_insync",
        "pending_isr",
        "replicas",
    )

    def __init__(
        self,
        leader_id: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        *,
        epoch_start_offset: int,
        high_watermark: int,
        min_insync: int,
        lag_ms_max: int,
        is_eligible: Callable[[int, int], bool],
        now_ms: int,
    ) -> None:
        self.leader_id = leader_id
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self.min_insync = min_insync
        self.isr: tuple[int, ...] = ()
        self.pending_isr: tuple[int, ...] | None = None
        """The ISR that was asked for; None if no answer is owed."""
        self.replicas: tuple[int, ...] = ()
        self.followers: dict[int, Follower] = {}
        self._lag_ms_max = lag_ms_max
        self._is_eligible = is_eligible
        self._counted: tuple[Follower, ...] = ()
        self._outside: tuple[Follower, ...] = ()
        self.take(replicas, isr, now_ms)

    # -- what the controller says

    def take(self, replicas: Sequence[int], isr: Sequence[int], now_ms: int) -> None:
        """The controller has decided; whatever was asked for is settled by that."""
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.pending_isr = None
        known = self.followers
        self.followers = {
            replica: known.get(replica)
            or Follower(replica, now_ms if replica in isr else now_ms - self._lag_ms_max - 1)
            for replica in replicas
            if replica != self.leader_id
        }
        for replica in isr:
            # Who has just come in has some time to show that it follows.
            if replica in self.followers and self.followers[replica].end_offset == NOT_FETCHED:
                self.followers[replica].caught_up_ms = now_ms
        self._count()

    def asked(self, isr: Sequence[int]) -> None:
        """Another ISR was asked for: from now on its members count too."""
        self.pending_isr = tuple(isr)
        self._count()

    def refused(self) -> None:
        """What was asked for will not be."""
        self.pending_isr = None
        self._count()

    def _count(self) -> None:
        counted = {*self.isr, *(self.pending_isr or ())}
        self._counted = tuple(follower for follower in self.followers.values() if follower.id in counted)
        self._outside = tuple(follower for follower in self.followers.values() if follower.id not in counted)

    @property
    def is_alone(self) -> bool:
        """No follower counts: what the leader has is committed."""
        return not self._counted

    @property
    def has_outsiders(self) -> bool:
        """Some follower is neither in the ISR nor about to be."""
        return bool(self._outside)

    # -- what followers show

    def fetched(
        self,
        follower_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        own_end_offset: int,
        now_ms: int,
    ) -> bool:
        """A follower has everything below `fetch_offset`. True if it might join the ISR with that.

        ApiError: it is no follower, or an older life of one.
        """
        follower = self.followers.get(follower_id)
        if follower is None:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {follower_id} is no replica, as far as is known here"
            )
        if broker_epoch != follower.broker_epoch:
            if broker_epoch < follower.broker_epoch:
                raise ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"broker {follower_id} has registered anew since epoch {broker_epoch}",
                )
            follower.broker_epoch = broker_epoch
            follower.leader_end_offset = own_end_offset
        if fetch_offset >= own_end_offset:
            follower.caught_up_ms = now_ms
        elif fetch_offset >= follower.leader_end_offset and follower.fetch_ms > follower.caught_up_ms:
            follower.caught_up_ms = follower.fetch_ms
        follower.end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.leader_end_offset = own_end_offset
        follower.fetch_ms = now_ms
        return bool(self._outside) and follower in self._outside

    def advance(self, own_end_offset: int, now_ms: int) -> int:
        """The high watermark by what is known now; `own_end_offset` is where the leader's safe log ends."""
        offset = own_end_offset
        for follower in self._counted:
            if follower.end_offset < offset:
                offset = follower.end_offset
        if offset > self.high_watermark and len(self.isr) >= self.min_insync:
            for follower in self._outside:
                if follower.end_offset < offset and self._is_chasing(follower, now_ms):
                    offset = follower.end_offset
            if offset > self.high_watermark:
                self.high_watermark = offset
        return self.high_watermark

    def _is_chasing(self, follower: Follower, now_ms: int) -> bool:
        return (
            now_ms - follower.fetch_ms <= CHASE_MS_MAX
            and now_ms - follower.caught_up_ms <= self._lag_ms_max
            and self._is_eligible(follower.id, follower.broker_epoch)
        )

    # -- what the leader wants

    def proposal(self, own_end_offset: int, now_ms: int) -> tuple[int, ...] | None:
        """The ISR to ask for, in the order of the replicas; None if it is right, or if an answer is owed."""
        if self.pending_isr is not None:
            return None
        wanted = tuple(
            replica
            for replica in self.replicas
            if replica == self.leader_id or self._belongs(self.followers[replica], own_end_offset, now_ms)
        )
        return wanted if set(wanted) != set(self.isr) else None

    def _belongs(self, follower: Follower, own_end_offset: int, now_ms: int) -> bool:
        if follower.id not in self.isr:
            return (
                follower.end_offset >= self.high_watermark
                and follower.end_offset >= self.epoch_start_offset
                and self._is_eligible(follower.id, follower.broker_epoch)
            )
        if follower.end_offset >= own_end_offset:
            # A quiet partition: nobody fetches what is not there.
            follower.caught_up_ms = now_ms
        return now_ms - follower.caught_up_ms <= self._lag_ms_max

    def low_watermark(self, own_start_offset: int) -> int:
        """No replica that lives has anything below it; -1 while one of them has not said what it has."""
        starts = [
            follower.log_start_offset
            for follower in self.followers.values()
            if follower.id in self.isr or self._is_eligible(follower.id, follower.broker_epoch)
        ]
        return min([own_start_offset, *starts])
