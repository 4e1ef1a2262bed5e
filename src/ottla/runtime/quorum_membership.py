"""Who votes: changes that operators or nodes ask for, and what a node does by itself to be a voter.

A controller that is no voter becomes one once it follows closely, if `controller.quorum.auto.join.enable`: first the
voter of its id on another directory is removed, which is what this node was before its disk was replaced; but not while
that voter fetches, since then it lives, and two processes have one id. A voter that
listens elsewhere than the voters' record says tells the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from ottla.core.quorum.roles import Follower
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterEndpoint
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.network import PeerError
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest

if TYPE_CHECKING:
    from ottla.runtime.quorum_driver import QuorumDriver

log: Final = structlog.get_logger()

CHANGE_TIMEOUT_MS: Final = 30_000
TRY_AGAIN_SECONDS: Final = 0.05
CARE_SECONDS: Final = 1.0
QUIET_ROUNDS: Final = 2
CLOCK_JITTER_MS: Final = 100


class QuorumMembership:
    """The voters, from one node's side."""

    __slots__ = ("_cluster_id", "_fetched_ms", "_node", "_quiet_rounds")

    def __init__(self, node: QuorumDriver, cluster_id: str) -> None:
        self._node = node
        self._cluster_id = cluster_id
        self._fetched_ms: int | None = None
        self._quiet_rounds = 0

    # -- asked for

    async def add_voter(self, request: AddRaftVoterRequest) -> None:
        """ApiError if it cannot be."""
        self._check_cluster(request.cluster_id)
        if not request.listeners:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a voter needs a listener")
        endpoints = tuple(VoterEndpoint(item.name, item.host, item.port) for item in request.listeners)
        voter = Voter(request.voter_id, request.voter_directory_id, endpoints)
        if not voter.is_known:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a voter needs the id of its directory")
        node = self._node
        await self._change(
            lambda: node.core.add_voter(voter, node.now_ms()), request.timeout_ms, wait=request.ack_when_committed
        )

    async def remove_voter(self, request: RemoveRaftVoterRequest) -> None:
        """ApiError if it cannot be."""
        self._check_cluster(request.cluster_id)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        await self._change(lambda: self._node.core.remove_voter(key), CHANGE_TIMEOUT_MS)

    async def update_voter(self, request: UpdateRaftVoterRequest) -> None:
        """ApiError if it cannot be."""
        self._check_cluster(request.cluster_id)
        node = self._node
        if request.current_leader_epoch != node.epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"the epoch is {node.epoch}")
        endpoints = tuple(VoterEndpoint(item.name, item.host, item.port) for item in request.listeners)
        voter = Voter(request.voter_id, request.voter_directory_id, endpoints)
        await self._change(lambda: node.core.update_voter(voter), CHANGE_TIMEOUT_MS, wait=False)

    def _check_cluster(self, cluster_id: str | None) -> None:
        if cluster_id is not None and cluster_id != self._cluster_id:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {self._cluster_id}")

    async def _change(self, begin: Callable[[], object], timeout_ms: int, *, wait: bool = True) -> None:
        """Begin a change as soon as it may be, and wait until it is committed."""
        try:
            async with asyncio.timeout(max(min(timeout_ms, CHANGE_TIMEOUT_MS), 0) / 1000):
                if await self._begin(begin) is not False and wait:
                    await self._node.voters_written()
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, "the change of the voters was not committed in time; it may still be"
            ) from None

    async def _begin(self, begin: Callable[[], object]) -> object:
        """A node that is not caught up yet, or another change under way, is waited for."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._node.config.controller_quorum_request_timeout_ms / 1000
        while True:
            try:
                outcome = begin()
            except ApiError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT or loop.time() >= until:
                    raise
            else:
                self._node.pump()
                return outcome
            await asyncio.sleep(TRY_AGAIN_SECONDS)

    # -- by itself

    async def care(self) -> None:
        """Be a voter, if this node is to be one, and where it listens."""
        node = self._node
        while True:
            await asyncio.sleep(CARE_SECONDS)
            role = node.core.role
            if not isinstance(role, Follower) or not role.has_fetched or not node.core.history.is_recorded:
                continue
            try:
                await self._care_once(role)
            except PeerError as error:
                log.debug("the quorum's leader was not reached", reason=str(error))

    async def _care_once(self, role: Follower) -> None:
        node, own = self._node, self._node.as_voter
        found = node.core.voters.find(own.id)
        behind = node.core.high_watermark < node.log.end_offset
        if found is not None and found.directory_id == own.directory_id:
            if own.endpoints and found.endpoints != own.endpoints:
                self._tell(
                    "told the leader where this voter listens",
                    await node.peers.update_voter(role.leader, own, node.epoch),
                )
        elif behind or not own.endpoints or not node.joins:
            return
        elif found is not None:
            if await self._is_quiet(role, found):
                error = await node.peers.remove_voter(role.leader, found)
                self._tell("asked to remove the voter that this node was on another disk", error)
        else:
            error = await node.peers.add_voter(role.leader, own)
            self._tell("asked to become a voter", error)

    async def _is_quiet(self, role: Follower, voter: Voter) -> bool:
        """Whether a voter of this node's id has fetched nothing for a while: else another process has the same id."""
        fetched_ms = await self._node.peers.last_fetch_ms(role.leader, voter.key)
        if self._fetched_ms is None or fetched_ms > self._fetched_ms + CLOCK_JITTER_MS:
            self._fetched_ms, self._quiet_rounds = fetched_ms, 0
            return False
        self._quiet_rounds += 1
        return self._quiet_rounds >= QUIET_ROUNDS

    @staticmethod
    def _tell(what: str, error: ErrorCode) -> None:
        log.info(what, outcome=error.name)
