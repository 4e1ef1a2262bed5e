"""A metadata quorum on a real directory, for tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

from ottla.core.controller.commands import RegisterBroker
from ottla.core.controller.features import REGISTERED_FEATURES
from ottla.core.controller.records import BrokerEndpoint
from ottla.log.disk import Disk, RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.resolve import BrokerConfig
from ottla.runtime.controller import ControllerDriver
from ottla.runtime.quorum_node import QuorumNode
from ottla.runtime.world import World

P = ParamSpec("P")
T = TypeVar("T")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = UUID(int=77)


class Inline:
    """Runs on the loop what would go to a thread, after everybody else had a turn; `gate` may look or raise."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate: Callable[[str], None] = lambda name: None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls.append(function.__name__)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.gate(function.__name__)
        return function(*args, **kwargs)

    def close(self) -> None:
        pass


class FixedClock:
    """Time stands still until a test moves it."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Node:
    """One node: what outlives a restart is in `path`."""

    def __init__(
        self,
        path: Path,
        properties: dict[str, str] | None = None,
        disk: Disk | None = None,
        offload: Inline | None = None,
    ) -> None:
        self.offload = offload or Inline()
        self.clock = FixedClock()
        self.world = World(
            clock=self.clock,
            offload=self.offload,
            disk=disk or RealDisk(),
            rng=random.Random(1),
        )
        self.config = BrokerConfig.from_properties({"log.dirs": str(path), **(properties or {})})
        self.failures: list[Exception] = []
        self.quorum = QuorumNode(
            self.world,
            OpenFiles(self.world.disk),
            self.config,
            cluster_id=CLUSTER_ID,
            directory_id=DIRECTORY_ID,
            on_failure=self.failures.append,
        )
        self.directory = path / "__cluster_metadata-0"

    async def register(self, controller: ControllerDriver, *, clean_start: bool = True) -> int:
        return await controller.submit(
            RegisterBroker(
                broker_id=1,
                incarnation_id=self.world.new_uuid(),
                cluster_id=CLUSTER_ID,
                endpoints=[BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0)],
                features=REGISTERED_FEATURES,
                log_dirs=[DIRECTORY_ID],
                clean_start=clean_start,
            )
        )

    def controller(self) -> ControllerDriver:
        return ControllerDriver(self.quorum, self.config, self.world.new_uuid)


@asynccontextmanager
async def running(
    path: Path, properties: dict[str, str] | None = None, disk: Disk | None = None
) -> AsyncIterator[tuple[Node, ControllerDriver]]:
    """A started and registered node; left without `close`, as by a crash, unless the test closes it."""
    node = Node(path, properties, disk)
    await node.quorum.start()
    controller = node.controller()
    await node.register(controller)
    yield node, controller
