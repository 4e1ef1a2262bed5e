"""This node's part in the metadata quorum, as the rest of the node and other nodes see it.

A node that starts reads its disk, and then it is a replica: a sole voter leads at once, others find a leader or elect
one. What happens then is `quorum_driver`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ottla.core.controller.records import Record
from ottla.core.quorum.core import QuorumCore
from ottla.core.quorum.roles import Leader
from ottla.core.quorum.voters import VoterHistory
from ottla.log.handles import OpenFiles
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode, StorageError
from ottla.runtime.metadata_log import load_metadata_log
from ottla.runtime.quorum import QuorumDescription, Subscriber
from ottla.runtime.quorum_commits import Commits
from ottla.runtime.quorum_description import describe
from ottla.runtime.quorum_driver import QuorumDriver
from ottla.runtime.quorum_log import QuorumLog
from ottla.runtime.quorum_membership import QuorumMembership
from ottla.runtime.quorum_requests import QuorumRequests
from ottla.runtime.quorum_settings import configured_voters, quorum_settings
from ottla.runtime.quorum_snapshots import QuorumSnapshots
from ottla.runtime.world import World

RESIGN_SECONDS: Final = 1.0


class QuorumNode(QuorumDriver):
    """One replica of the metadata log, as a leader, a follower or an observer."""

    def __init__(
        self,
        world: World,
        files: OpenFiles,
        config: BrokerConfig,
        *,
        cluster_id: str,
        directory_id: UUID,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        super().__init__(world, config, cluster_id=cluster_id, directory_id=directory_id, on_failure=on_failure)
        self._files = files
        requests, membership = QuorumRequests(self, cluster_id), QuorumMembership(self, cluster_id)
        self.vote = requests.vote
        self.begin_quorum_epoch = requests.begin_quorum_epoch
        self.end_quorum_epoch = requests.end_quorum_epoch
        self.fetch = requests.fetch
        self.fetch_snapshot = requests.fetch_snapshot
        self.add_voter = membership.add_voter
        self.remove_voter = membership.remove_voter
        self.update_voter = membership.update_voter
        self._membership = membership

    # -- life

    async def start(self) -> None:
        """Bring back what is on disk. A sole voter leads when this returns; others find or elect a leader later."""
        now_ms = self.world.clock.now_ms()
        loaded = await self.world.offload.run(
            load_metadata_log, self.world.disk, self._files, self.directory, self.config, self.cluster_id, now_ms
        )
        subscribers = self.commits
        self.commits = Commits(loaded.image, loaded.batches)
        self.commits.take_subscribers(subscribers)
        self.log = QuorumLog(self.world, self.directory, loaded)
        history = VoterHistory(configured_voters(self.config, self._settings))
        if loaded.voters is not None:
            history.restart(loaded.voters)
        for batch in loaded.batches:
            if batch.voters is not None:
                history.add(*batch.voters)
        random_below = self.world.rng.randrange
        self.core = QuorumCore(
            self._settings, self.log, history, self.log.state, lambda n: random_below(n), self.now_ms()
        )
        self.snapshots = QuorumSnapshots(self, now_ms)
        if self.is_alone and self._settings.may_vote:
            self._established = asyncio.get_running_loop().create_future()
            self._step(lambda: self.core.tick(self.now_ms()))
            await self._established
            self._established = None
        else:
            self._step(lambda: self.core.tick(self.now_ms()))
        if self._settings.may_vote:
            self.spawn(self._membership.care)

    def listens_at(self, config: BrokerConfig) -> None:
        """The ports of the listeners are known now, where the system chose them: others find this node there."""
        settings = quorum_settings(config, self._settings.key)
        if settings.endpoints != self._settings.endpoints:
            self._settings = settings
            self._step(lambda: self.core.listens_at(settings.endpoints, self.now_ms()))

    async def resign(self) -> None:
        """Before a planned stop: let another node lead, and wait a moment until it knows."""
        if not isinstance(self.core.role, Leader) or len(self.core.voters.voters) == 1:
            return
        followed = asyncio.Event()
        self.subscribe_leadership(lambda: followed.set() if self.leader_id >= 0 else None)
        self._step(lambda: self.core.resign(self.now_ms()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESIGN_SECONDS):
                await followed.wait()

    async def close(self) -> None:
        """Wait for what is under way and put the log down. The next start needs no repair."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
        self._news.tell()
        while self._syncing or self._states.is_busy or self._disk_busy:
            await asyncio.sleep(0)
            if tasks := list(self._tasks.values()):
                await asyncio.wait(tasks, timeout=0.01)
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        if hasattr(self, "log") and self._failure is None:
            await self.log.store_again()
            await self.world.offload.run(self.log.log.close)
        self._failure = self._failure or StorageError(self.directory, "the metadata log is closed")
        self.commits.fail(ApiError(ErrorCode.NOT_CONTROLLER, "this node stops; another leads the metadata quorum"))

    @property
    def _disk_busy(self) -> bool:
        return hasattr(self, "snapshots") and (self.snapshots.is_busy or self.log.is_storing)

    # -- what others may know

    @property
    def next_offset(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self.image.offset + 1

    def subscribe(self, subscriber: Subscriber) -> None:
        self.commits.subscribe(subscriber)

    def subscribe_leadership(self, listener: Callable[[], None]) -> None:
        self._leadership_listeners.append(listener)

    def describe(self) -> QuorumDescription:
        return describe(self)

    # -- writing

    async def append(self, records: Sequence[Record]) -> int:
        return await self.write(records)

    def write(self, records: Sequence[Record]) -> asyncio.Future[int]:
        self.check_serves()
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")
        # Whoever stops waiting must not take the commit away from others that wait for it.
        return asyncio.shield(self._write(records))

    async def settled(self) -> None:
        self.check_serves()
        if (last := self.commits.last_waiter) is not None:
            await asyncio.shield(last)
