"""What a process finds on its machine: a clock, threads, and a worker for records."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from simulator.node_loop import NodeLoop
from simulator.timeline import Timeline

if TYPE_CHECKING:
    from ottla.log.compaction import CleanedGroup, CompactionJob, CompactionResult
    from ottla.log.disk import Disk
    from ottla.runtime.record_inline import InlineRecordWork

P = ParamSpec("P")
T = TypeVar("T")

START_MS: Final = 1_700_000_000_000
"""Wall time when a run begins."""
THREAD_SECONDS: Final = 0.0004
SLOW_THREAD_SECONDS: Final = 0.03
SLOW_THREAD_SHARE: Final = 0.03


class MachineClock:
    """A machine's clock: right, until somebody steps it. It belongs to the machine and outlives its processes."""

    __slots__ = ("_timeline", "offset_ms")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.offset_ms = 0

    def now_ms(self) -> int:
        return START_MS + self._timeline.now_us // 1000 + self.offset_ms


class ProcessClock:
    """The machine's wall time, and a monotonic time that begins with the process."""

    __slots__ = ("_loop", "now_ms")

    def __init__(self, machine: MachineClock, loop: NodeLoop) -> None:
        self._loop = loop
        self.now_ms = machine.now_ms

    def monotonic(self) -> float:
        return self._loop.time()


class SimulatedThreads:
    """Runs functions at once or after a while, and tells of it after a while: where in between is chance."""

    __slots__ = ("_loop", "_rng", "slowness")

    def __init__(self, loop: NodeLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self.slowness = 1.0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop, draw = self._loop, self._rng.random()
        longest = SLOW_THREAD_SECONDS if draw < SLOW_THREAD_SHARE else THREAD_SECONDS
        seconds = self._rng.random() * longest * self.slowness
        done: asyncio.Future[T] = loop.create_future()

        def work() -> T:
            return function(*args, **kwargs)

        if draw > 0.5:
            loop.call_later(seconds, _settle, done, _outcome(work))
        else:
            loop.call_later(seconds, _work, done, work)
        return await done

    def close(self) -> None:
        pass


def _outcome(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:
        return None, error


def _work(done: asyncio.Future[Any], work: Callable[[], object]) -> None:
    _settle(done, _outcome(work))


def _settle(done: asyncio.Future[Any], outcome: tuple[Any, Exception | None]) -> None:
    result, error = outcome
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


class LazyRecordWork:
    """Record work in this process, whose compiled code is loaded when a run first needs it."""

    __slots__ = ("_counts", "_disk", "_work")

    def __init__(self, disk: Disk, counts: Counter[str]) -> None:
        self._disk = disk
        self._counts = counts
        self._work: InlineRecordWork | None = None

    def _loaded(self) -> InlineRecordWork:
        if self._work is None:
            from ottla.runtime.record_inline import InlineRecordWork

            self._work = InlineRecordWork(self._disk)
        return self._work

    async def validate(
        self, batch: bytes, *, requires_keys: bool, timestamp_range: tuple[int, int] | None = None
    ) -> bytes:
        return await self._loaded().validate(batch, requires_keys=requires_keys, timestamp_range=timestamp_range)

    async def recompress(self, batch: bytes, codec: int, level: int | None, batch_bytes_max: int) -> bytes:
        return await self._loaded().recompress(batch, codec, level, batch_bytes_max)

    async def compact(
        self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
    ) -> CompactionResult:
        result = await self._loaded().compact(job, on_group)
        self._counts["done: compaction"] += 1
        return result

    async def warm(self) -> None:
        pass

    async def close(self) -> None:
        pass
