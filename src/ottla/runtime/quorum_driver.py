"""The driver of `core.quorum`: carries out what it wants on disk and network, and tells it what came of that.

Theory of operation. Whatever happens (a request, an answer, a sync, a timer) is told to the core, then `pump` carries
out what the core wants: it appends, starts syncs, sends. Everything that waits for a disk or another node is a task
that reports back when it is done. After each event what is committed is applied (`quorum_commits`), and then changes of
the leadership are told. A sole voter takes the same way and touches no network.

What an editor must keep true.
- Nothing leaves this node before the epoch and the vote that it rests on are on disk: `_state_reached` stands before
  each send, and `state_stored`, which first does what the core wants, before each answer.
- The log is changed on the loop only, and a follower's changes check that it still follows the same leader.
- A failed sync is final: pages may be gone and the next sync would lie. Then this node leads nothing, votes for nobody
  and answers nobody as a replica: whoever waits or asks hears that the controller is elsewhere, and the node stops.
- What is committed is applied before the loss of the lead is told: whoever waited for it hears that it is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, ParamSpec
from uuid import UUID

import structlog

from ottla.core.controller.features import opening_records
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.records import Record
from ottla.core.quorum.core import QuorumCore
from ottla.core.quorum.effects import (
    NO_LEADER,
    Append,
    AppendVoters,
    BeginEpoch,
    Effect,
    FetchSnapshot,
    Position,
    QuorumSettings,
    Send,
    StoreState,
    Truncate,
)
from ottla.core.quorum.roles import Leader
from ottla.core.quorum.voters import ReplicaKey, Voter
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, OttlaError
from ottla.runtime.metadata_codec import LEADER_CHANGE, build_batch, build_control_records, leader_change
from ottla.runtime.metadata_log import METADATA_PARTITION
from ottla.runtime.network import PeerError
from ottla.runtime.peers import Peers
from ottla.runtime.quorum_commits import Commits, failed_commit
from ottla.runtime.quorum_log import QuorumLog
from ottla.runtime.quorum_news import News
from ottla.runtime.quorum_peers import FETCH_WAIT_MS, QuorumPeers
from ottla.runtime.quorum_records import LoggedBatch, read_batches, voter_records
from ottla.runtime.quorum_settings import quorum_settings
from ottla.runtime.quorum_snapshots import QuorumSnapshots
from ottla.runtime.quorum_state_store import StateStore
from ottla.runtime.world import World
from ottla.wire.schema import Message

P = ParamSpec("P")
log: Final = structlog.get_logger()

INLINE_DECODE_BYTES: Final = 32 << 10
"""More than this of a leader's records is read in a thread."""


class QuorumDriver:
    """Drives the core; `QuorumNode` is what others see of it."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        *,
        cluster_id: str,
        directory_id: UUID,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self.world = world
        self.config = config
        self.cluster_id = cluster_id
        self.directory = f"{config.metadata_log_dir}/{METADATA_PARTITION}"
        self.node_id = config.node_id
        self.fetch_wait_ms_max = FETCH_WAIT_MS
        self.joins = config.controller_quorum_auto_join_enable
        self._settings: QuorumSettings = quorum_settings(config, ReplicaKey(config.node_id, directory_id))
        self._on_failure = on_failure
        self._failure: Exception | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._tasks_started = 0
        self._leadership_listeners: list[Callable[[], None]] = []
        self._leadership: tuple[int, int, bool] = (-1, -1, False)
        self._states = StateStore(lambda state: self.log.store(state), self._state_on_disk)
        self._news = News()
        self._seen: tuple[int, int, int, bool] = (-1, -1, -1, False)
        self._voters_written: asyncio.Future[int] | None = None
        self._syncing = self._pumping = self._pump_again = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        """When it goes off: at the next deadline or before it, since most deadlines only move away."""
        self._opened_epoch = -1
        self._closed = False
        self._established: asyncio.Future[None] | None = None
        transport = Peers(
            world.network,
            client_id=f"quorum-{config.node_id}",
            image=lambda: self.image,
            listener_name=lambda: "",
            leader=self.address_of_leader,
            voters=lambda: (),
        )
        self._transport = transport
        self.peers = QuorumPeers(
            transport,
            cluster_id,
            timeout_ms=max(config.controller_quorum_request_timeout_ms, 1),
            fetch_bytes_max=config.controller_quorum_fetch_max_bytes,
            configured={voter.node_id: Position(*voter) for voter in config.controller_quorum_voters},
        )
        self.commits = Commits(MetadataImage(cluster_id=cluster_id))
        self.core: QuorumCore
        self.log: QuorumLog
        self.snapshots: QuorumSnapshots

    def now_ms(self) -> int:
        """Time for waits; it does not jump."""
        return int(self.world.clock.monotonic() * 1000)

    def spawn(self, work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **kwargs: P.kwargs) -> None:
        self._tasks_started = number = self._tasks_started + 1
        guarded = self._guarded(number, partial(work, *args, **kwargs))
        self._tasks[number] = asyncio.get_running_loop().create_task(guarded)

    async def _guarded(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._fail(error)
        finally:
            self._tasks.pop(number, None)

    # -- what others may know

    @property
    def image(self) -> MetadataImage:
        return self.commits.image

    @property
    def epoch(self) -> int:
        return self._leadership[1]

    @property
    def leader_id(self) -> int:
        return self._leadership[0]

    @property
    def is_leader(self) -> bool:
        return self._leadership[2]

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.core.voters.is_sole(self.core.key)

    @property
    def as_voter(self) -> Voter:
        return self._settings.as_voter

    def address_of_leader(self) -> tuple[str, int] | None:
        leader = self.core.leader if hasattr(self, "core") else None
        return None if leader is None else (leader.host, leader.port)

    def leads(self, epoch: int) -> bool:
        return isinstance(self.core.role, Leader) and self.core.epoch == epoch

    # -- writing

    async def voters_written(self) -> None:
        """Return when the last change of the voters that was made here is committed."""
        if self._voters_written is not None:
            await asyncio.shield(self._voters_written)

    def _write(self, records: Sequence[Record]) -> asyncio.Future[int]:
        now_ms = self.world.clock.now_ms()
        batch = build_batch(records, base_offset=self.log.end_offset, leader_epoch=self.core.epoch, now_ms=now_ms)
        return self._append(batch, records, None)

    def _write_control(self, messages: Sequence[tuple[int, Message]], voters: Any) -> asyncio.Future[int]:
        now_ms = self.world.clock.now_ms()
        batch = build_control_records(
            messages, base_offset=self.log.end_offset, leader_epoch=self.core.epoch, now_ms=now_ms
        )
        offset = self.log.end_offset + len(messages) - 1
        committed = self._append(batch, (), None if voters is None else (offset, voters))
        if voters is not None:
            self._voters_written = committed
            self.log.voter_ids = voters.ids
            self.core.voters_appended(offset, voters, self.now_ms())
        return committed

    def _append(
        self, batch: bytearray, records: Sequence[Record], voters: tuple[int, Any] | None
    ) -> asyncio.Future[int]:
        """ApiError: there is no space, the log is as it was, and the caller may try again."""
        self.check_serves()
        epoch = self.core.epoch
        try:
            appended = self.log.append(batch, epoch, self.world.clock.now_ms())
        except ApiError:
            raise
        except OttlaError as error:
            self._fail(error)
            raise
        self.commits.add(LoggedBatch(appended.base_offset, appended.last_offset, epoch, len(batch), records, voters))
        committed = self.commits.wait_for(appended.last_offset)
        self._sync_soon()
        self._news.tell()
        return committed

    # -- driving the core

    def _step(self, event: Callable[[], object]) -> None:
        """Tell the core of something, then do what it wants."""
        if self._failure is not None or self._closed:
            return
        try:
            event()
        except OttlaError as error:
            self._fail(error)
            return
        self.pump()

    def pump(self) -> None:
        """Carry out what the core wants, apply what is committed, tell who leads, set the next timer."""
        if self._failure is not None:
            return
        if self._pumping:
            self._pump_again = True
            return
        self._pumping = True
        try:
            while True:
                self._pump_again = False
                while effects := self.core.drain():
                    for effect in effects:
                        self._carry_out(effect)
                self._apply()
                if not self._pump_again and not self._notice():
                    break
        except Exception as error:
            self._fail(error)
        finally:
            self._pumping = False
        self._set_timer()

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, StoreState):
            if self._states.want(effect):
                self.spawn(self._states.write)
        elif isinstance(effect, Send):
            self.spawn(self._send, effect)
        elif isinstance(effect, Append):
            if effect.records is not None:
                self.spawn(self._take, effect)
            else:
                self._sync_soon()
        elif isinstance(effect, Truncate):
            self.spawn(self._truncate, effect)
        elif isinstance(effect, FetchSnapshot):
            self.spawn(self._fetch_snapshot, effect)
        else:
            self._append_control(effect)

    def _append_control(self, effect: BeginEpoch | AppendVoters) -> None:
        if not self.leads(effect.epoch):
            return
        first = not self.core.history.is_recorded
        try:
            if isinstance(effect, AppendVoters):
                log.info("the voters change", voters=effect.voters.ids)
                self._write_control(voter_records(effect.voters, with_version=first), effect.voters)
                return
            change = leader_change(self.node_id, effect.voters.ids, effect.granting)
            messages: list[tuple[int, Message]] = [(LEADER_CHANGE, change)]
            if effect.record_voters:
                messages += voter_records(effect.voters, with_version=True)
            self._write_control(messages, effect.voters if effect.record_voters else None)
        except ApiError as error:
            # No space. As a leader that cannot write it serves nobody; another may have room.
            log.error("cannot write to the metadata log", directory=self.directory, error=str(error))
            if isinstance(effect, AppendVoters):
                self.core.voters_not_appended()
                self._voters_written = failed_commit(error)  # Whoever asked for them hears of it.
                return
            if self._established is not None and not self._established.done():
                self._established.set_exception(error)
            self.core.resign(self.now_ms())

    def _apply(self) -> None:
        self.commits.advance(self.core.high_watermark)
        if self.core.is_established and self._opened_epoch != self.core.epoch and (records := self._opening_records()):
            self._opened_epoch = self.core.epoch
            try:
                self._write(records)
            except ApiError as error:
                log.error("cannot write to the metadata log", directory=self.directory, error=str(error))
                self.core.resign(self.now_ms())
                self._pump_again = True
        self.snapshots.take_if_due()

    def _opening_records(self) -> list[Record]:
        return opening_records(self.image, self.config, is_in_transaction=self.commits.is_in_transaction)

    def _notice(self) -> bool:
        """Tell of changes; whether there were any."""
        core = self.core
        role = (core.epoch, self.log.end_offset, core.high_watermark, isinstance(core.role, Leader))
        if role != self._seen:
            if self._seen[3] and (not role[3] or role[0] != self._seen[0]):
                self.commits.fail(ApiError(ErrorCode.NOT_CONTROLLER, "this node does not lead the quorum any more"))
            self._seen = role
            self._news.tell()
        leads = core.is_established and self.image.offset >= 0 and not self._opening_records()
        leadership = (core.leader_id, core.epoch, leads)
        if leadership == self._leadership:
            return False
        self._leadership = leadership
        if leads and self._established is not None and not self._established.done():
            self._established.set_result(None)
        for listener in list(self._leadership_listeners):
            listener()
        return True

    def _set_timer(self) -> None:
        now_ms = self.now_ms()
        is_over = self._failure is not None or self._closed
        due_ms = None if is_over else self.core.next_deadline_ms(now_ms)
        timer = self._timer
        if timer is not None:
            if due_ms is not None and self._timer_ms <= due_ms:
                return
            timer.cancel()
            self._timer = None
        if due_ms is not None:
            self._timer_ms = due_ms
            wait_seconds = max(due_ms - now_ms, 1) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._step(lambda: self.core.tick(self.now_ms()))

    # -- what waits for the disk

    def _sync_soon(self) -> None:
        if not self._syncing:
            self._syncing = True
            self.spawn(self._sync)

    async def _sync(self) -> None:
        """Sync until nothing is left; what arrives during a sync is part of the next one."""
        try:
            while True:
                if self.log.synced_offset < self.log.end_offset:
                    await self.log.bring_to_disk()
                self._step_now(lambda: self.core.synced(self.now_ms()))
                if self.log.synced_offset >= self.log.end_offset or self._failure is not None:
                    return
        finally:
            self._syncing = False

    def _step_now(self, event: Callable[[], object]) -> None:
        """`_step`, also while closing: what was written is still committed."""
        if self._failure is None:
            event()
            self.pump()

    def _state_on_disk(self, version: int) -> None:
        self._step_now(lambda: self.core.state_stored(version, self.now_ms()))

    async def state_stored(self) -> None:
        """Do what the core wants, and return when the epoch and the vote as they are now are on disk."""
        self.pump()
        await self._state_reached()

    async def _state_reached(self) -> None:
        await self._states.reached(self.core.state_version)
        self.check_serves()

    def check_serves(self) -> None:
        """ApiError if this replica can take part no more, because its log failed or was closed."""
        if self._failure is not None:
            raise _gone()

    async def _take(self, effect: Append) -> None:
        """Append what the leader sent, and sync it."""
        data = memoryview(effect.records)
        if len(data) > INLINE_DECODE_BYTES:
            batches = await self.world.offload.run(read_batches, data)
        else:
            batches = read_batches(data)
        if not self.core.is_following(effect.epoch):
            return
        try:
            for batch in batches:
                if batch.base_offset >= self.log.end_offset:
                    self._append_fetched(data, batch)
        except ApiError as error:
            # No space, or damaged on the way: what was appended stays, the rest is fetched again.
            log.error("cannot write to the metadata log", directory=self.directory, error=str(error))
            self._step(lambda: self.core.append_failed(self.now_ms()))
            return
        self._sync_soon()

    def _append_fetched(self, data: memoryview, batch: LoggedBatch) -> None:
        start = batch.position
        self.log.log.append_as_follower(data[start : start + batch.size], self.world.clock.now_ms())
        self.commits.add(batch)
        if batch.voters is not None:
            self.log.voter_ids = batch.voters[1].ids
            self.core.voters_appended(*batch.voters, self.now_ms())

    async def _truncate(self, effect: Truncate) -> None:
        await self.log.lower_synced_offset(effect.offset)
        if not self.core.is_following(effect.epoch):
            self.log.keep()
        else:
            log.info("the metadata log is cut to what the leader has", offset=effect.offset)
            dropped = self.log.cut(effect.offset, self.world.clock.now_ms())
            self.commits.truncate(self.log.end_offset)
            await self.log.delete_files(dropped)
        self._step_now(lambda: self.core.truncated(self.now_ms()))

    async def _fetch_snapshot(self, effect: FetchSnapshot) -> None:
        await self.state_stored()
        try:
            await self.snapshots.fetch(effect)
        except (PeerError, OSError, ApiError, CorruptLogError) as error:
            log.warning("a snapshot of the metadata was not fetched", reason=str(error))
            self._step(lambda: self.core.failed(effect.number, self.now_ms()))
        else:
            self._step(lambda: self.core.snapshot_installed(effect.number, self.now_ms()))

    # -- what waits for other nodes

    async def _send(self, effect: Send) -> None:
        await self._state_reached()
        try:
            answer = await self.peers.ask(effect.to, effect.request)
        except PeerError as error:
            refused = error.refused
            self._step(lambda: self.core.failed(effect.number, self.now_ms(), refused=refused))
        else:
            self._step(lambda: self.core.answered(effect.number, answer, self.now_ms()))

    async def news(self, offset: int, high_watermark: int, wait_ms: int) -> None:
        """Wait for something beyond an offset, a higher high watermark, another leader, or for long enough."""
        epoch = self.core.epoch

        def nothing_new() -> bool:
            if self._closed or self._failure is not None or not self.leads(epoch):
                return False
            return self.log.end_offset <= offset and self.core.high_watermark <= high_watermark

        await self._news.wait_while(nothing_new, wait_ms)

    def _fail(self, error: Exception) -> None:
        """Nothing can be agreed on any more. Tell everybody who waits, and whoever must stop the node."""
        if self._failure is not None:
            return
        self._failure = error
        log.error("metadata log failed", directory=self.directory, error=str(error))
        self.commits.fail(_gone())
        self._states.give_up()
        self._news.tell()
        if self._established is not None and not self._established.done():
            self._established.set_exception(error)
        if self._leadership[2]:
            self._leadership = (NO_LEADER, self._leadership[1], False)
            for listener in list(self._leadership_listeners):
                listener()
        self._on_failure(error)


def _gone() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "the metadata log of this node failed, or is closed; another node leads")
