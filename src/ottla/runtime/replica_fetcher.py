"""Fetches from one leader all that this broker follows there, for as long as there is something.

Theory of operation. One request at a time over one connection: what changed since the last one is named, the leader
answers when it has something new, what came is appended, and the next request says how far the logs are by then, which
is what the leader counts. A request that waits at the leader is cut short when there is something else to ask: a second
one on the same session, which the leader answers at once, makes it answer the first.

A partition is in one of three places: `_new` until its log is open, `_active` while it is fetched, `_delayed` while it
is left alone after an error or by its quota. An error of one partition never holds up the others.

While all goes well, requests and answers follow each other in a conversation with the leader (`_reply`): a short answer
is appended in the turn in which it arrives, and the next request leaves at once. The first answer that is long, or has
anything in it but records, ends that and is taken by the task (`_take`), which knows about everything else.

What an editor must keep true:
- The loop gets its turn after each slice of appends, and nothing that blocks runs on it.
- `_changed` holds every active partition whose next question may differ from the last one.
- `_reply` leaves to `_take` what it does not understand, as it came: `_take` may see rows that are appended already.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from ottla.core.replication import follower
from ottla.core.replication.follower import backoff_ms
from ottla.core.replication.quota import ReplicationQuota, is_throttled
from ottla.core.replication.replica_session import Asked, ReplicaSession, SessionRequest
from ottla.model.errors import MalformedMessageError, OttlaError, StorageError
from ottla.runtime import replica_answers
from ottla.runtime.followed_partition import FollowedPartition, FollowerContext, PartitionKey
from ottla.runtime.network import PeerError
from ottla.wire.fetch_client import (
    ReplicaAnswer,
    ReplicaRow,
    encode_replica_request,
    encode_request,
    fetch_request,
    parse_replica_response,
)
from ottla.wire.fetch_types import REPLICA_STATE_SINCE, VERSION_MAX, FetchPartition

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition
    from ottla.runtime.peers import Peer
    from ottla.wire.fields import TopicKey

log = structlog.get_logger("ottla.replication")

FETCH_KEY: Final = 1
BYTES_PER_TURN: Final = 1 << 20
"""Appended before others have their turn; well under a millisecond."""
LOGS_PER_TURN: Final = 16
"""Opened before others have their turn."""
FAILURES_PER_REPORT: Final = 60
RESTART_SECONDS: Final = 1.0
REPLY_BYTES_MAX: Final = 512 << 10
"""A longer answer is taken by the task, in slices."""
REPLY_SECONDS_MAX: Final = 0.003
"""What takes longer, since its batches are small and many, is taken by the task, too."""


class ReplicaFetcher:
    """One of the fetchers from one leader."""

    __slots__ = (
        "_active",
        "_changed",
        "_closed",
        "_context",
        "_delayed",
        "_dropped",
        "_failures",
        "_followed",
        "_new",
        "_nudge",
        "_peer",
        "_polls",
        "_quota",
        "_session",
        "_task",
        "_timer",
        "_version",
        "_woken",
        "bytes_total",
        "leader_id",
    )

    def __init__(self, leader_id: int, peer: Peer, context: FollowerContext, quota: ReplicationQuota) -> None:
        self.leader_id = leader_id
        self.bytes_total = 0
        self._peer = peer
        self._context = context
        self._quota = quota
        self._session: ReplicaSession[PartitionKey] = ReplicaSession()
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._new: dict[PartitionKey, FollowedPartition] = {}
        self._active: dict[PartitionKey, FollowedPartition] = {}
        self._delayed: dict[PartitionKey, FollowedPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._dropped: dict[PartitionKey, None] = {}
        self._closed = False
        self._polls = False
        """A request is out that the leader may answer late."""
        self._nudge: tuple[SessionRequest[PartitionKey], asyncio.Task[ReplicaAnswer]] | None = None
        self._failures = 0
        self._version = VERSION_MAX
        """Of Fetch, as it is spoken with the leader."""
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    # -- which partitions

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from now on, in its present leader epoch."""
        followed = FollowedPartition(partition, self._context)
        self.release(followed.key)
        self._followed[followed.key] = self._new[followed.key] = followed
        if self._task is None:
            self._begin()
        self.wake()

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A fetcher ends only when it is closed. One that fell over goes on: to stop would stop the replicas."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a fetcher failed and begins anew", leader=self.leader_id, exc_info=error)
            self._session.forget()
            self._changed.update(dict.fromkeys(self._active))
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._begin_again)

    def _begin_again(self) -> None:
        if self._task is not None and self._task.done() and not self._task.cancelled() and not self._closed:
            self._begin()

    def release(self, key: PartitionKey) -> None:
        """Fetch a partition no longer."""
        followed = self._followed.pop(key, None)
        if followed is None:
            return
        followed.released = True
        for place in (self._new, self._delayed, self._active):
            place.pop(key, None)
        self._changed.pop(key, None)
        self._dropped[key] = None

    async def close(self) -> None:
        self._closed = True
        for key in list(self._followed):
            self.release(key)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """There is something else to ask: end a wait, here or at the leader."""
        self._woken.set()
        if self._polls and self._nudge is None and self._session.is_open:
            request = self._session.incremental((), ())
            self._nudge = request, asyncio.ensure_future(self._send(request, 0))

    # -- asking

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            self._release_due()
            await self._admit()
            request = self._next_request()
            if request is None:
                self._failures = 0
                await self._woken.wait()
                continue
            try:
                await self._exchange(request)
                self._failures = 0
            except (PeerError, MalformedMessageError) as error:
                await self._pause(error)

    def _release_due(self) -> None:
        """Take those back whose wait is over."""
        if not self._delayed:
            return
        now_ms = self._now_ms()
        for followed in [followed for followed in self._delayed.values() if followed.state.is_due(now_ms)]:
            del self._delayed[followed.key]
            if followed.partition.log_or_none is None:
                self._new[followed.key] = followed
            else:
                self._activate(followed)
        if self._delayed:
            self._wake_in(min(followed.state.retry_at_ms for followed in self._delayed.values()) - now_ms)

    async def _admit(self) -> None:
        """Open the logs of those that came, some at a time."""
        turns = 0
        while self._new:
            key, followed = next(iter(self._new.items()))
            try:
                await followed.open()
            except OttlaError as error:
                self._failed(followed, error)
            else:
                if self._new.get(key) is followed:
                    del self._new[key]
                    self._activate(followed)
            turns += 1
            if turns % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _activate(self, followed: FollowedPartition) -> None:
        self._active[followed.key] = followed
        self._changed[followed.key] = None
        if followed.key in self._dropped:
            # The leader was not told of the pause, and may have forgotten how far this replica was.
            del self._dropped[followed.key]
            self._session.ask_again(followed.key)

    def _next_request(self) -> SessionRequest[PartitionKey] | None:
        """What to ask now; None if there is nothing."""
        session = self._session
        if not session.is_open:
            self._changed.clear()
            self._dropped.clear()
            return session.full(dict(self._rows(self._active))) if self._active else None
        changed, self._changed = self._changed, {}
        request = session.incremental(self._rows(changed), self._dropped)
        self._dropped.clear()
        if not self._active and not request.forgotten:
            session.forget()
            return None
        return request

    def _rows(
        self, keys: dict[PartitionKey, FollowedPartition] | dict[PartitionKey, None]
    ) -> list[tuple[PartitionKey, Asked]]:
        rows = []
        for key in list(keys):
            followed = self._active.get(key)
            if followed is not None:
                try:
                    rows.append((key, followed.asked()))
                except OttlaError as error:
                    self._failed(followed, error)
        return rows

    async def _exchange(self, request: SessionRequest[PartitionKey]) -> None:
        # The first answer brings the session, without which nothing can end the wait: so it does not wait.
        waits = bool(self._active) and (not request.is_full or self._session.refused)
        try:
            self._polls = waits
            answer = await self._send(request, self._wait_ms() if waits else 0, talks=waits and not request.is_full)
            self._polls = False
            await self._take(request, answer)
            while self._nudge is not None:
                (request, sent), self._nudge = self._nudge, None
                await self._take(request, await sent)
        finally:
            self._polls = False
            if self._nudge is not None:
                (_, sent), self._nudge = self._nudge, None
                sent.cancel()
                await asyncio.gather(sent, return_exceptions=True)

    def _wait_ms(self) -> int:
        return self._context.config().replica_fetch_wait_max_ms

    async def _send(self, request: SessionRequest[PartitionKey], wait_ms: int, *, talks: bool = False) -> ReplicaAnswer:
        """The answer to a request; or, after a conversation that began with it, the answer that ended that."""

        def body(version: int) -> bytes:
            self._version = version
            return self._encoded(request, wait_ms)

        version, answer = await self._peer.request_raw(
            FETCH_KEY,
            VERSION_MAX,
            body,
            timeout_ms=self._context.config().replica_socket_timeout_ms,
            version_min=REPLICA_STATE_SINCE,
            reply=self._reply if talks else None,
        )
        return parse_replica_response(answer, version)

    def _encoded(self, request: SessionRequest[PartitionKey], wait_ms: int) -> bytes:
        config, context = self._context.config(), self._context
        if not request.forgotten:
            return encode_replica_request(
                request.rows,
                max_wait_ms=wait_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                partition_bytes=config.replica_fetch_max_bytes,
                session_id=request.session_id,
                session_epoch=request.epoch,
                replica_id=context.node_id,
                replica_epoch=context.broker_epoch(),
            )
        topics: dict[TopicKey, list[FetchPartition]] = {}
        for (topic, index), (leader_epoch, offset, last_epoch, start) in request.rows:
            row = FetchPartition(index, leader_epoch, offset, last_epoch, start, config.replica_fetch_max_bytes)
            topics.setdefault(topic, []).append(row)
        forgotten: dict[TopicKey, list[int]] = {}
        for topic, index in request.forgotten:
            forgotten.setdefault(topic, []).append(index)
        message = fetch_request(
            list(topics.items()),
            max_wait_ms=wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=request.session_id,
            session_epoch=request.epoch,
            forgotten=list(forgotten.items()),
            replica_id=context.node_id,
            replica_epoch=context.broker_epoch(),
        )
        return encode_request(self._version, message)

    def _reply(self, body: memoryview) -> bytes | None:
        """Take a plain answer where it lies and say what to ask next; None if it is one for `_take`."""
        if self._nudge is not None or self._dropped or self._woken.is_set() or len(body) > REPLY_BYTES_MAX:
            return None
        try:
            answer = parse_replica_response(body, self._version)
            if answer.error_code:
                return None
            clock, sent = self._context.world.clock, self._session.sent
            now_ms, late = clock.now_ms(), clock.monotonic() + REPLY_SECONDS_MAX
            for row in answer.rows:
                followed = self._active.get((row.topic, row.index))  # type: ignore[arg-type]
                if followed is None or clock.monotonic() > late:
                    return None
                taken = replica_answers.append_at_once(followed, row, sent.get(followed.key), now_ms)
                if taken < 0:
                    return None
                self._changed[followed.key] = None
                if taken:
                    self._count(followed, taken)
        except OttlaError:
            return None  # Comes up again in `_take`.
        if self._dropped or not self._active:
            return None
        request = self._next_request()
        return None if request is None else self._encoded(request, self._wait_ms())

    async def _pause(self, error: OttlaError) -> None:
        """The leader cannot be reached: begin anew with it, soon at first."""
        self._session.forget()
        if self._failures % FAILURES_PER_REPORT == 0:
            log.warning("cannot fetch", leader=self.leader_id, partitions=len(self._followed), reason=str(error))
        delay_ms = backoff_ms(self._failures, self._context.config().replica_fetch_backoff_ms)
        self._failures += 1
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._woken.wait()
        except TimeoutError:
            return

    # -- what an answer means

    async def _take(self, request: SessionRequest[PartitionKey], answer: ReplicaAnswer) -> None:
        if answer.error_code:
            self._session.forget()
            if not request.is_full:
                return  # The leader has forgotten the session: the next request is whole.
            raise PeerError(f"broker {self.leader_id}", follower.understand_error(answer.error_code).reason)
        self._session.answered(request, answer.session_id)
        unflushed: list[FollowedPartition] = []
        spent, now_ms = 0, self._context.world.clock.now_ms()
        for row in answer.rows:
            key = (row.topic, row.index)
            followed = self._active.get(key)  # type: ignore[arg-type]  # a follower's answers name topics by id
            if followed is None or not followed.is_current:
                continue
            self._changed[followed.key] = None
            await self._take_row(followed, row, now_ms)
            opened = followed.partition.log_or_none
            if opened is not None and opened.flush_due():
                unflushed.append(followed)
            spent += len(row.records)
            if spent >= BYTES_PER_TURN:
                spent = 0
                await asyncio.sleep(0)
        if len(unflushed) == 1:
            await self._flush(unflushed[0])
        elif unflushed:
            await asyncio.gather(*map(self._flush, unflushed))

    async def _take_row(self, followed: FollowedPartition, row: ReplicaRow, now_ms: int) -> None:
        asked = self._session.sent.get(followed.key)
        try:
            if row.error_code or row.diverging_epoch is not None:
                decision = await replica_answers.reconcile(followed, row, asked, self._peer, self._context)
                if decision is not None:
                    self._wait(followed, decision.reason, is_expected=follower.is_expected(row.error_code))
            elif taken := await replica_answers.append(followed, row, asked, now_ms):
                self._count(followed, taken)
        except OttlaError as error:
            self._failed(followed, error)

    async def _flush(self, followed: FollowedPartition) -> None:
        try:
            await followed.flush()
        except OttlaError as error:
            self._failed(followed, error)

    def _count(self, followed: FollowedPartition, size: int) -> None:
        """Note what was fetched; one that is throttled, and not in sync, pauses when it is beyond its quota."""
        self.bytes_total += size
        topic = self._context.table.find(followed.partition.topic_id)
        throttled = () if topic is None else topic.config.follower_replication_throttled_replicas
        if throttled and is_throttled(throttled, followed.partition.index, self._context.node_id):
            now_ms = self._now_ms()
            self._quota.record(size, now_ms)
            wait_ms = self._quota.wait_ms(now_ms)
            if wait_ms and not followed.is_in_sync:
                followed.state.retry_at_ms = now_ms + wait_ms
                self._delay(followed, wait_ms)

    # -- waiting

    def _failed(self, followed: FollowedPartition, error: OttlaError) -> None:
        if isinstance(error, StorageError) and not followed.partition.gone:
            self._context.table.directory_failed(error)
        self._wait(followed, str(error))

    def _wait(self, followed: FollowedPartition, reason: str, *, is_expected: bool = False) -> None:
        if self._followed.get(followed.key) is not followed:
            return
        state = followed.state
        if not is_expected and state.failures % FAILURES_PER_REPORT == 0:
            partition = str(followed.partition.topic_partition)
            log.warning("cannot follow", partition=partition, leader=self.leader_id, reason=reason)
        self._delay(followed, state.wait(self._now_ms(), self._context.config().replica_fetch_backoff_ms))

    def _delay(self, followed: FollowedPartition, delay_ms: int) -> None:
        """Leave a partition alone for a while; the leader forgets it meanwhile."""
        key = followed.key
        self._new.pop(key, None)
        self._active.pop(key, None)
        self._changed.pop(key, None)
        self._dropped[key] = None
        self._delayed[key] = followed
        self._wake_in(delay_ms)

    def _wake_in(self, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_ms / 1000
        if self._timer is None or self._timer.when() > at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(at, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._delayed:
            self.wake()

    def _now_ms(self) -> int:
        return int(self._context.world.clock.monotonic() * 1000)
