"""The cluster as a client sees it: brokers, leaders, coordinators, and a connection to each."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.runtime.network import PeerError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import Message
from simulator.clients.connection import ClientConnection, Gone
from simulator.history import Place

if TYPE_CHECKING:
    from simulator.room import Room

R = TypeVar("R", bound=Message)

Address = tuple[str, int]
BACKOFF_SECONDS: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 1.0
GROUP, TRANSACTION = 0, 1


class NoLeader(Exception):
    """Nobody leads the partition, as far as is known."""


class ClusterClient:
    """What producers, consumers and admins of one process share."""

    def __init__(self, room: Room, name: str, bootstrap: list[Address]) -> None:
        self.room = room
        self.name = name
        self.loop = room.process(name)
        self.rng = random.Random(f"{room.chance.seed}/client/{name}")
        self.topic_ids: dict[str, UUID] = {}
        self.leaders: dict[Place, int] = {}
        self.epochs: dict[Place, int] = {}
        self._network = room.network_of(name, self.loop)
        self._bootstrap = bootstrap
        self._brokers: dict[int, Address] = {}
        self._connections: dict[tuple[Address, str], ClientConnection] = {}
        self._coordinators: dict[tuple[str, int], ClientConnection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[ClientConnection]] = {}

    async def connection(self, address: Address, lane: str = "") -> ClientConnection:
        """An open one; Gone if it cannot be had."""
        key = address, lane
        found = self._connections.get(key)
        if found is not None and found.is_open:
            return found
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = self.loop.create_task(
                ClientConnection.open(self._network, self.loop, self.name, *address)
            )
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        try:
            opened = self._connections[key] = await asyncio.shield(opening)
        except PeerError as error:
            raise Gone(str(error)) from error
        return opened

    async def any_broker(self) -> ClientConnection:
        addresses = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        return await self.connection(self.rng.choice(addresses))

    async def refresh(self, topics: list[str]) -> None:
        """Ask anybody who leads what; what is not answered stays as it was."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        connection = await self.any_broker()
        answer = await connection.request(request, MetadataResponse, timeout_ms=5000)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            if topic.error_code or topic.name is None:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                place = Place(topic.name, partition.partition_index)
                if partition.leader_epoch >= self.epochs.get(place, -1):
                    self.epochs[place] = partition.leader_epoch
                    self.leaders[place] = partition.leader_id

    async def leader_of(self, place: Place, lane: str = "") -> ClientConnection:
        """A connection to the partition's leader; NoLeader or Gone."""
        address = self._brokers.get(self.leaders.get(place, -1))
        if address is None or place.topic not in self.topic_ids:
            await self.refresh([place.topic])
            address = self._brokers.get(self.leaders.get(place, -1))
            if address is None:
                raise NoLeader(str(place))
        return await self.connection(address, lane)

    async def leader_moved(self, place: Place, attempt: int) -> None:
        """After an error that says so: wait a little and ask again."""
        await self.back_off(attempt)
        try:
            await self.refresh([place.topic])
        except Gone:
            self.leaders.pop(place, None)

    async def back_off(self, attempt: int) -> None:
        """Something went wrong: wait a little, and take nothing for granted."""
        self.coordinator_moved()
        longest = min(BACKOFF_SECONDS * 2 ** min(attempt, 10), BACKOFF_SECONDS_MAX)
        await asyncio.sleep(longest * (0.5 + self.rng.random() / 2))

    async def coordinator(self, key: str, kind: int) -> ClientConnection:
        """A connection to whoever coordinates a group or a transactional id; Gone if nobody does yet."""
        known = self._coordinators.get((key, kind))
        if known is not None and known.is_open:
            return known
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        asked = await self.any_broker()
        answer = await asked.request(request, FindCoordinatorResponse, timeout_ms=5000)
        found = answer.coordinators[0]
        if found.error_code:
            raise Gone(f"no coordinator: {ErrorCode(found.error_code).name}")
        opened = await self.connection((found.host, found.port), f"coordinator-{kind}")
        self._coordinators[key, kind] = opened
        return opened

    def coordinator_moved(self) -> None:
        """Whoever was asked says that it is somebody else: ask again who it is."""
        self._coordinators.clear()
