"""The world as the runtime may touch it: time, threads, files, chance, peers. The simulator hands in another one."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from ottla.log.disk import Disk
from ottla.model.ids import spellable
from ottla.runtime.network import Network
from ottla.runtime.tcp_network import TcpNetwork

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for waits."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class Offload(Protocol):
    """Runs what would block the loop: a thread in production, at once in simulation."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def close(self) -> None: ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


class SteadyClock:
    """Another clock's wall time that does not jump: read once, it goes on with that clock's monotonic time.

    For deadlines that are kept as wall time: when the machine's clock is set, nobody's session ends early or late.
    """

    __slots__ = ("_offset_ms", "monotonic")

    def __init__(self, clock: Clock) -> None:
        self.monotonic = clock.monotonic
        self._offset_ms = clock.now_ms() - clock.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self.monotonic() * 1000 + self._offset_ms)


class Threads:
    """A bounded pool of threads; what is handed in beyond its size waits in order."""

    __slots__ = ("_pool",)

    def __init__(self, threads_max: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="ottla-io")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        future = self._pool.submit(function, *args, **kwargs)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def random_uuid() -> uuid.UUID:
    return spellable(uuid.uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the process that the runtime reaches, in one place."""

    clock: Clock
    offload: Offload
    disk: Disk
    rng: random.Random
    new_uuid: Callable[[], uuid.UUID] = random_uuid
    network: Network = field(default_factory=TcpNetwork)
