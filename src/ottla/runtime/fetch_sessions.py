"""Fetch sessions (KIP-227): a consumer of a thousand quiet partitions costs what changed, not what it subscribed to.

Theory of operation. A session remembers what its consumer fetches. Each remembered partition watches the real one; an
append marks it dirty. A fetch looks at dirty partitions only, so an idle poll looks at nothing. A partition leaves the
dirty set when it was looked at and had neither data nor news, and it stays while it has data at the remembered offset.

A fetch without a session is a session that lives for one request. It watches its partitions only while it waits. A
connection that sends nothing but those may keep one for itself (`remembered_fetches`): that one lasts without an id.

A follower's session is the same, with the log end in the place of the high watermark: an append makes its partition
dirty and wakes its fetch; that the high watermark moved makes it dirty too, and is told with the next answer there is,
or at once where consumers read from followers (`is_eager`).

What an editor must keep true:
- A partition that has something the consumer does not know of is dirty. Forgetting one means a consumer that hangs.
- A partition that cannot be resolved (unknown topic, other leader) is always dirty: its error goes out each time.
- Whoever is removed from a session no longer watches: else a deleted session is kept alive by its partitions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias
from uuid import UUID

from ottla.model.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition

TopicKey: TypeAlias = str | UUID
"""A topic as the request names it: by name up to version 12, by id from then on."""

SESSION_EPOCH_INITIAL = 0
SESSION_EPOCH_FINAL = -1
SESSION_ID_NONE = 0
SESSION_EPOCH_MAX = 2**31 - 1
PARTITIONS_MAX = 500_000
"""Of all sessions together, which is a quarter of a gigabyte: one request may name a hundred thousand."""


class Waiting(Protocol):
    """The fetch that waits on a session."""

    @property
    def deadline(self) -> float: ...

    def wake(self) -> None: ...

    def expire(self) -> None: ...


class FetchedPartition:
    """One partition as a fetch session remembers it; it watches the partition for its session."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark_sent",
        "index",
        "is_uncounted",
        "last_fetched_epoch",
        "last_stable_offset_sent",
        "log_start_offset",
        "log_start_offset_sent",
        "max_bytes",
        "partition",
        "session",
        "topic",
    )

    def __init__(self, session: FetchSession, topic: TopicKey, index: int) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        self.partition: Partition | None = None
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        """Where a follower's own log starts."""
        self.is_uncounted = False
        """A follower has said where it is, and the leader has not taken that into account yet."""
        self.high_watermark_sent = -1
        self.last_stable_offset_sent = -1
        self.log_start_offset_sent = -1

    def partition_changed(self) -> None:
        """Called by the partition, on the loop."""
        session = self.session
        session.dirty[self] = None
        if session.waiting is not None:
            session.waiting.wake()

    def partition_committed(self) -> None:
        """A follower's: the high watermark moved."""
        session = self.session
        session.dirty[self] = None
        if session.is_eager and session.waiting is not None:
            session.waiting.wake()

    def partition_gone(self) -> None:
        """The partition is not what it was here: look it up again, which gives the error to answer with."""
        self.partition = None
        self.partition_changed()

    def watch(self) -> None:
        if self.partition is not None:
            if self.session.replica_id >= 0:
                self.partition.watch_end(self)
            else:
                self.partition.watch(self)

    def unwatch(self) -> None:
        if self.partition is not None:
            if self.session.replica_id >= 0:
                self.partition.unwatch_end(self)
            else:
                self.partition.unwatch(self)
            self.partition = None

    def has_news(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> bool:
        """Whether the consumer was told something else last time."""
        return (
            high_watermark != self.high_watermark_sent
            or log_start_offset != self.log_start_offset_sent
            or last_stable_offset != self.last_stable_offset_sent
        )

    def is_behind(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether a follower should learn at once where the log starts, or what is committed, by now."""
        if self.log_start_offset_sent not in (-1, log_start_offset):
            return True
        return self.session.is_eager and high_watermark > self.high_watermark_sent

    def told(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        self.high_watermark_sent = high_watermark
        self.last_stable_offset_sent = last_stable_offset
        self.log_start_offset_sent = log_start_offset


class FetchSession:
    """What one consumer or follower fetches. One that lasts is there for more than one request."""

    __slots__ = (
        "counted",
        "dirty",
        "epoch",
        "id",
        "is_eager",
        "lasts",
        "partitions",
        "rack",
        "reads_followers",
        "replica_epoch",
        "replica_id",
        "timer",
        "timer_at",
        "used_at",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(self, session_id: int = SESSION_ID_NONE, *, lasts: bool = False) -> None:
        self.id = session_id
        """0 if the client knows of none."""
        self.lasts = lasts or session_id != SESSION_ID_NONE
        self.epoch = SESSION_EPOCH_INITIAL
        self.counted = 0
        """How many of its partitions `FetchSessions` has counted."""
        self.partitions: dict[tuple[TopicKey, int], FetchedPartition] = {}
        self.dirty: dict[FetchedPartition, None] = {}
        """In the order in which they get their turn: who got data goes to the end."""
        self.waiting: Waiting | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Goes off at the deadline of this fetch or of an earlier one; see `Fetches.watch_time`."""
        self.timer_at = 0.0
        self.used_at = 0.0
        self.replica_id = -1
        """The follower that fetches, and the broker epoch it lives in; -1 for a consumer."""
        self.replica_epoch = -1
        self.is_eager = False
        self.uses_topic_ids = False
        """How its topics are named, for as long as it lasts: an answer of another version has no place for them."""
        self.reads_followers = False
        """A consumer that knows that it may read from a replica that does not lead."""
        self.rack = ""
        """Where the consumer is, if it is to be sent to a replica nearby."""

    def update(
        self,
        topic: TopicKey,
        partitions: Iterable[tuple[int, int, int, int, int, int]],
    ) -> None:
        """Take over what a request says of a topic: tuples as `wire.fetch` parses them."""
        known, is_follower = self.partitions, self.replica_id >= 0
        for index, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, max_bytes in partitions:
            fetched = known.get((topic, index))
            if fetched is None:
                fetched = known[(topic, index)] = FetchedPartition(self, topic, index)
            fetched.current_leader_epoch = current_leader_epoch
            fetched.fetch_offset = fetch_offset
            fetched.last_fetched_epoch = last_fetched_epoch
            fetched.max_bytes = max_bytes
            if is_follower:
                fetched.log_start_offset = log_start_offset
                fetched.is_uncounted = True
            self.dirty[fetched] = None

    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        for index in indexes:
            fetched = self.partitions.pop((topic, index), None)
            if fetched is not None:
                self.dirty.pop(fetched, None)
                fetched.unwatch()

    def close(self) -> None:
        """Stop watching; a closed session is garbage. A fetch that waits on it gets what there is.

        Its consumer counts on that answer: those to what it asks later stand behind it.
        """
        if self.waiting is not None:
            self.waiting.expire()
        self.waiting = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for fetched in self.partitions.values():
            fetched.unwatch()
        self.partitions.clear()
        self.dirty.clear()


class FetchSessions:
    """The broker's sessions, bounded, and so are their partitions. A full cache gives no session, which every client
    understands."""

    __slots__ = (
        "_idle_seconds_min",
        "_rng",
        "_sessions",
        "evictions",
        "partitions_cached",
        "partitions_max",
        "slots_max",
    )

    def __init__(
        self,
        slots_max: int,
        rng: random.Random,
        idle_seconds_min: float = 120.0,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self.slots_max = slots_max
        self.partitions_max = partitions_max
        self.partitions_cached = 0
        self.evictions = 0
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        self._idle_seconds_min = idle_seconds_min

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, now: float, *, is_privileged: bool = False) -> FetchSession:
        """A session for a full fetch that asks for one; without an id when there is no room.

        A follower's takes the place of any other: without sessions followers cost most.
        """
        if len(self._sessions) >= self.slots_max and not self._evict(
            now, 0 if is_privileged else self._idle_seconds_min
        ):
            return FetchSession()
        session_id = self._rng.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id)
        session.used_at = now
        return session

    def resume(self, session_id: int, epoch: int, now: float) -> FetchSession | ErrorCode:
        """The session of an incremental fetch, or why there is none."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != self._epoch_after(session.epoch):
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = epoch
        session.used_at = now
        # Last used goes to the end, so the first one is the one to evict.
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def keeps(self, session: FetchSession) -> bool:
        """Whether a session stays, with the partitions that it has by now; one that does not is none from now on."""
        if session.id == SESSION_ID_NONE:
            return True
        more = len(session.partitions) - session.counted
        while more > 0 and self.partitions_cached + more > self.partitions_max:
            if not self._evict(session.used_at, self._idle_seconds_min):
                self._forget(session)
                session.id, session.lasts = SESSION_ID_NONE, False
                return False
        self.partitions_cached += more
        session.counted += more
        return True

    def close(self, session_id: int) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            self._forget(session)
            session.close()

    def _forget(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self.partitions_cached -= session.counted
        session.counted = 0

    @staticmethod
    def _epoch_after(epoch: int) -> int:
        return 1 if epoch == SESSION_EPOCH_MAX else epoch + 1

    def _evict(self, now: float, idle_seconds_min: float) -> bool:
        session_id, session = next(iter(self._sessions.items()), (SESSION_ID_NONE, None))
        if session is None or session.waiting is not None or now - session.used_at < idle_seconds_min:
            return False
        self.evictions += 1
        self.close(session_id)
        return True
