"""A member of a group of the classic protocol: all join, one of them assigns, and nobody reads while they do.

What it shares with a member of the new protocol is reading and committing. Its generation stands where the other has
the epoch: a commit of an older generation is refused.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from simulator.clients.cluster import GROUP
from simulator.clients.connection import Gone
from simulator.clients.group_member import REBALANCE_TIMEOUT_MS, GroupMember
from simulator.history import Place

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.history import History

SESSION_TIMEOUT_MS: Final = 6000
HEARTBEAT_SECONDS: Final = 1.5
PROTOCOL: Final = "range"
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")


class ClassicMember(GroupMember):
    """One consumer of a classic group."""

    def __init__(self, cluster: ClusterClient, history: History, group: str, places: list[Place]) -> None:
        super().__init__(cluster, history, group, sorted({place.topic for place in places}))
        self._places_of_all = places
        self._member_id = ""

    async def run(self, commit_seconds: float) -> None:
        self.cluster.loop.start(self._reader.run())
        self.cluster.loop.start(self._commit_now_and_then(commit_seconds))
        attempt = 0
        while not self.stopped:
            try:
                await self._join()
                attempt = 0
                while self.epoch and not self.stopped:
                    await asyncio.sleep(HEARTBEAT_SECONDS)
                    await self._beat()
            except Gone:
                attempt += 1
                await self.cluster.back_off(attempt)
        self._reader.stopped = True

    # -- membership

    async def _join(self) -> None:
        """Take part in a rebalance. Gone if it comes to nothing."""
        if self.epoch:
            await self._commit(list(self.owned))
        self._lose_everything()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=_subscription(self._topics))],
        )
        connection = await self.cluster.coordinator(self.group, GROUP)
        answer = await connection.request(request, JoinGroupResponse, timeout_ms=REBALANCE_TIMEOUT_MS * 2)
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._member_id = answer.member_id
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code is not ErrorCode.NONE:
            raise Gone(code.name)
        await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        assignments = []
        if joined.leader == self._member_id:
            ids = sorted(member.member_id for member in joined.members)
            shares: dict[str, list[Place]] = {member_id: [] for member_id in ids}
            for number, place in enumerate(self._places_of_all):
                shares[ids[number % len(ids)]].append(place)
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(share))
                for member_id, share in shares.items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        connection = await self.cluster.coordinator(self.group, GROUP)
        answer = await connection.request(request, SyncGroupResponse, timeout_ms=REBALANCE_TIMEOUT_MS * 2)
        self._check(answer.error_code)
        await self.cluster.refresh(self._topics)
        places = _places(bytes(answer.assignment))
        offsets = await self._committed(places) if places else {}
        self.epoch = joined.generation_id
        for place in places:
            self.owned[place] = None
            self._reader.positions[place] = max(offsets[place], 0)
        self._reader.generation += 1
        self.cluster.room.counts["done: classic rebalance"] += 1

    async def _beat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self._member_id)
        connection = await self.cluster.coordinator(self.group, GROUP)
        answer = await connection.request(request, HeartbeatResponse, timeout_ms=5000)
        self._check(answer.error_code)

    def _check(self, error_code: int) -> None:
        code = ErrorCode(error_code)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._lose_everything()
        if code is not ErrorCode.NONE:
            raise Gone(code.name)

    @property
    def _fetches_as(self) -> tuple[str | None, int]:
        return None, -1


def _subscription(topics: list[str]) -> bytes:
    named = b"".join(_SHORT.pack(len(topic)) + topic.encode() for topic in topics)
    return _SHORT.pack(0) + _INT.pack(len(topics)) + named + _INT.pack(-1)


def _assignment(places: list[Place]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    rows = b""
    for topic, partitions in by_topic.items():
        rows += _SHORT.pack(len(topic)) + topic.encode() + _INT.pack(len(partitions))
        rows += b"".join(_INT.pack(partition) for partition in partitions)
    return _SHORT.pack(0) + _INT.pack(len(by_topic)) + rows + _INT.pack(-1)


def _places(assignment: bytes) -> list[Place]:
    """What `_assignment` wrote; a member that the leader did not know has nothing."""
    if not assignment:
        return []
    found, position = [], 6
    for _ in range(_INT.unpack_from(assignment, 2)[0]):
        size = _SHORT.unpack_from(assignment, position)[0]
        topic = assignment[position + 2 : position + 2 + size].decode()
        position += 2 + size
        count = _INT.unpack_from(assignment, position)[0]
        position += 4
        for _ in range(count):
            found.append(Place(topic, _INT.unpack_from(assignment, position)[0]))
            position += 4
    return found
