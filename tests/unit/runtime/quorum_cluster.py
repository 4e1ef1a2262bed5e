"""Nodes of a quorum on real directories, with a network in memory that breaks as it is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.api import fetch
from ottla.api.context import RequestContext
from ottla.api.table import BY_KEY
from ottla.core.controller.records import ConfigRecord
from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import MIN_INSYNC, BrokerConfig
from ottla.model.errors import ApiError
from ottla.runtime.network import PeerError, StreamHandler
from ottla.runtime.quorum_node import QuorumNode
from ottla.runtime.world import SystemClock, World
from ottla.wire.headers import API_VERSIONS_KEY, parse_request_header, response_header
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.schema import decode, encode

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
FAST = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.request.timeout.ms": "600",
}


class Stream:
    """One connection; requests are served one after the other."""

    def __init__(self, network: MemoryNetwork, target: Member, handler: StreamHandler) -> None:
        self._network = network
        self._target = target
        self._handler = handler
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.create_task(self._serve())
        self._task.add_done_callback(self._ended)

    def send(self, frame: bytes | bytearray) -> None:
        self._frames.put_nowait(bytes(frame))

    def close(self) -> None:
        self._task.cancel()
        self._network.streams.pop(self, None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._target.failures.append(cast(Exception, error))

    def broken(self) -> None:
        """The other side is gone."""
        self.close()
        self._handler.stream_closed(PeerError(self._target.name, "the connection broke"))

    async def _serve(self) -> None:
        while True:
            frame = await self._frames.get()
            if self._network.is_cut(self._network.member, self._target):
                continue
            answer = await self._target.answer(memoryview(bytearray(frame)))
            if not self._network.is_cut(self._network.member, self._target):
                self._handler.frame_received(memoryview(answer))


class MemoryNetwork:
    """The network as one node sees it."""

    def __init__(self, cluster: QuorumCluster, member: Member) -> None:
        self._cluster = cluster
        self.member = member
        self.streams: dict[Stream, Member] = {}

    def is_cut(self, one: Member, other: Member) -> bool:
        return one.id in self._cluster.cut or other.id in self._cluster.cut

    async def connect(self, host: str, port: int, handler: StreamHandler) -> Stream:
        await asyncio.sleep(0)
        target = self._cluster.members.get(port)
        if target is None or target.quorum is None or not target.is_up:
            raise PeerError(f"{host}:{port}", "refused", refused=True)
        stream = Stream(self, target, handler)
        self.streams[stream] = target
        return stream


class Loop:
    """Runs what would go to a thread on the loop, after everybody else had a turn."""

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    def close(self) -> None:
        pass


class Member:
    """One node: what outlives a restart is in `path`."""

    def __init__(self, cluster: QuorumCluster, node_id: int, path: Path, properties: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.id = node_id
        self.name = f"node-{node_id}"
        self.path = path
        self.properties = properties
        self.network = MemoryNetwork(cluster, self)
        self.directory_id = UUID(int=node_id * 1000)
        self.quorum: QuorumNode | None = None
        self.is_up = False
        self.failures: list[Exception] = []

    @property
    def node(self) -> QuorumNode:
        assert self.quorum is not None
        return self.quorum

    async def start(self) -> QuorumNode:
        world = World(
            clock=SystemClock(),
            offload=cast(Any, Loop()),
            disk=RealDisk(),
            rng=random.Random(self.id),
            network=self.network,
        )
        config = BrokerConfig.from_properties(
            {
                "log.dirs": str(self.path),
                "node.id": str(self.id),
                "listeners": f"PLAINTEXT://{self.name}:{self.id}",
                **FAST,
                **self.properties,
            }
        )
        self.quorum = QuorumNode(
            world,
            OpenFiles(world.disk),
            config,
            cluster_id=CLUSTER_ID,
            directory_id=self.directory_id,
            on_failure=self.failures.append,
        )
        self.is_up = True
        await self.quorum.start()
        return self.quorum

    async def kill(self) -> None:
        """As kill -9 does: connections break, nothing is closed."""
        self.is_up = False
        node = self.node
        node._closed = True
        node._transport.close()
        for task in list(node._tasks.values()):
            task.cancel()
        for member in self.cluster.members.values():
            for stream, target in list(member.network.streams.items()):
                if target is self:
                    stream.broken()
        await asyncio.sleep(0)

    async def stop(self) -> None:
        self.is_up = False
        await self.node.close()

    def wipe(self) -> None:
        """An empty disk in place of the old one."""
        self.path = self.path.with_name(self.path.name + "-new")
        self.directory_id = UUID(int=self.directory_id.int + 1)

    async def answer(self, frame: memoryview) -> bytes:
        """What its server would say."""
        key, version, correlation, _, body = parse_request_header(frame)
        if key == API_VERSIONS_KEY:
            served = [
                ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
                for api in BY_KEY.values()
            ]
            return response_header(key, version, correlation) + encode(ApiVersionsResponse(api_keys=served), version)
        services = SimpleNamespace(quorum=self.node, image=self.node.image)
        ctx = cast(RequestContext, SimpleNamespace(services=services, api_version=version, correlation_id=correlation))
        api = BY_KEY[key]
        if api.handler is fetch.handle:
            return b"".join(cast(Any, await cast(Awaitable[Any], fetch.handle(ctx, frame, body))))
        assert api.request is not None
        assert api.error_response is not None
        request = decode(api.request, frame, version, body)
        try:
            found = cast(Any, api.handler)(ctx, request)
            answer = await found if isinstance(found, Awaitable) else found
        except ApiError as error:
            answer = api.error_response(request, error.code, error.message, version)
        return response_header(key, version, correlation) + encode(answer, version)


class QuorumCluster:
    """All nodes, by their ids, which are their ports too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: dict[int, Member] = {}
        self.cut: set[int] = set()
        """Nodes that nothing reaches and nothing leaves; whoever asks waits in vain."""

    def add(self, node_id: int, properties: Mapping[str, str]) -> Member:
        member = self.members[node_id] = Member(self, node_id, self.path / str(node_id), properties)
        return member

    @property
    def leader(self) -> Member | None:
        found = [member for member in self.members.values() if member.is_up and member.quorum and member.node.is_leader]
        return max(found, key=lambda member: member.node.epoch, default=None)

    async def until(self, condition: Callable[[], object], seconds: float = 15) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    async def wait_for_leader(self, *, other_than: Member | None = None) -> Member:
        await self.until(lambda: self.leader not in (None, other_than))
        assert self.leader is not None
        return self.leader


def voters(*node_ids: int) -> dict[str, str]:
    listed = ",".join(f"{node_id}@node-{node_id}:{node_id}" for node_id in node_ids)
    return {"controller.quorum.voters": listed, "cluster.id": CLUSTER_ID}


def setting(name: str, value: str) -> ConfigRecord:
    """A record that is easily found in an image."""
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=name, value=value)


def settings_of(node: QuorumNode) -> dict[str, str]:
    """What was set since the cluster was founded."""
    found = dict(node.image.configs_of(ResourceType.BROKER, ""))
    found.pop(MIN_INSYNC, None)
    return found


@asynccontextmanager
async def three_nodes(path: Path, properties: Mapping[str, str] | None = None) -> AsyncIterator[QuorumCluster]:
    """Three voters, started; those that still run in the end are stopped."""
    cluster = QuorumCluster(path)
    for node_id in (1, 2, 3):
        cluster.add(node_id, {**voters(1, 2, 3), **(properties or {})})
    for member in cluster.members.values():
        await member.start()
    try:
        yield cluster
    finally:
        for member in cluster.members.values():
            if member.is_up:
                await member.stop()
