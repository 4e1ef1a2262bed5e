"""What all connections of one loop share: memory, counters, limits and the wheel that finds the idle ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.api.produce_turn import ProduceTurn
from ottla.model import open_files
from ottla.server.attention import Attention
from ottla.server.idle import IdleWheel
from ottla.server.output import STAGING_BYTES
from ottla.server.platform import Platform, choose_platform
from ottla.server.receive import ReceiveBuffers
from ottla.server.refusals import Refusals
from ottla.server.turn import Turn

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.model.configs.resolve import BrokerConfig


CONNECTIONS_MAX: Final = 2**31 - 1
SPARE_FILES_MIN: Final = 48
"""Open files that neither logs nor clients may have: for other brokers, scrapes, checkpoints, compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What clients may cost, by Kafka's configs and with Kafka's defaults."""

    request_bytes_max: int = 100 * 1024 * 1024
    connections_max: int = CONNECTIONS_MAX
    connections_per_host_max: int = CONNECTIONS_MAX
    connections_per_host_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms_max: int = 600_000

    @classmethod
    def of(cls, config: BrokerConfig) -> ConnectionLimits:
        return cls(
            request_bytes_max=config.socket_request_max_bytes,
            connections_max=min(config.max_connections, _connections_possible()),
            connections_per_host_max=config.max_connections_per_ip,
            connections_per_host_overrides=config.max_connections_per_ip_overrides,
            idle_ms_max=config.connections_max_idle_ms,
        )

    def per_host(self, host: str) -> int:
        return self.connections_per_host_overrides.get(host, self.connections_per_host_max)


def _connections_possible() -> int:
    """How many leave enough open files to the rest of the broker: a log that cannot be opened has failed."""
    files = open_files.limit()
    if files is None:
        return CONNECTIONS_MAX
    return max(files - open_files.for_logs() - max(files // 8, SPARE_FILES_MIN), 1)


class LoopShare:
    """Made once per loop, by whoever builds the listeners; used from that loop only.

    `limits` may be replaced at any time and holds for what comes after, except the idle time.
    """

    __slots__ = (
        "_hosts",
        "_limits",
        "_room_waiters",
        "_tasks",
        "attention",
        "buffers",
        "idle",
        "loop",
        "metrics",
        "offload",
        "open_count",
        "platform",
        "refusals",
        "request_bytes_max",
        "services",
        "staging",
        "turn",
    )

    def __init__(self, services: Services, limits: ConnectionLimits, platform: Platform | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.services = services
        self.metrics = services.metrics
        self.offload = services.world.offload
        self._limits = limits
        self.request_bytes_max = limits.request_bytes_max
        self.platform = platform or choose_platform()
        self.buffers = ReceiveBuffers()
        self.staging = memoryview(bytearray(STAGING_BYTES))
        self.attention = Attention(self.loop)
        self.turn = self.attention.turn = Turn(ProduceTurn(services, self.attention.touch))
        self.idle = IdleWheel(self.loop, limits.idle_ms_max)
        self.refusals = Refusals(self.loop.time)
        self.open_count = 0
        self._hosts: dict[str, int] = {}
        self._room_waiters: list[Callable[[], None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.request_bytes_max = limits.request_bytes_max
        self._tell_of_room()

    def has_room(self) -> bool:
        return self.open_count < self._limits.connections_max

    def wait_for_room(self, callback: Callable[[], None]) -> None:
        """Run the callback once, when a connection has gone or more are allowed."""
        if callback not in self._room_waiters:
            self._room_waiters.append(callback)

    def admit(self, host: str) -> bool:
        """Count a connection in, unless its host holds too many already."""
        held = self._hosts.get(host, 0)
        if held >= self.limits.per_host(host):
            return False
        self._hosts[host] = held + 1
        self.open_count += 1
        self.metrics.connections_open += 1
        self.metrics.connections_accepted += 1
        return True

    def dismiss(self, host: str) -> None:
        """Count a connection out."""
        self.open_count -= 1
        self.metrics.connections_open -= 1
        held = self._hosts[host] - 1
        if held:
            self._hosts[host] = held
        else:
            del self._hosts[host]
        self._tell_of_room()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside the connections; it handles its own errors."""
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _tell_of_room(self) -> None:
        if self._room_waiters and self.has_room():
            waiters, self._room_waiters = self._room_waiters, []
            for callback in waiters:
                self.loop.call_soon(callback)

    async def close(self) -> None:
        """After the last listener has closed."""
        self.idle.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
