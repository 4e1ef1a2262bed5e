"""An asyncio loop for each process of the simulation, all of them on one timeline.

Theory of operation. A loop has a queue of callbacks that are ready. After an event of the process (a timer, a frame)
they have their turn: as a rule at once, now and then some microseconds later, by the loop's own chance, so that
processes interleave and a crash may come between any two turns. A timer is an event of its own. A killed process is
a loop that drops everything: its callbacks, its timers, its pending tasks. A paused one keeps what falls due and does
it when it goes on. Its clock may drift and jump by itself. After each event `watch` looks at what came of it.

What an editor must keep true: nothing of a dead loop runs again, whatever the garbage collector does with what is
left of it; and whoever calls into a process from outside goes through `enter`.
"""

from __future__ import annotations

import asyncio
import random
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from simulator.timeline import SECOND_US, Timeline

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURN_US_MAX: Final = 40
"""The longest time from the first ready callback to its turn, on a machine that is not slow."""
LATER_SHARE: Final = 0.2
"""So many turns come later, the others at once."""


class NodeHandle(asyncio.TimerHandle):
    """A callback on a loop; both what asyncio calls a handle and an event of the timeline."""

    __slots__ = ("arguments", "call", "context", "node_loop", "time")

    def __init__(
        self, loop: NodeLoop, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        # What the parent class keeps is not used: this one is made for every callback.
        self.node_loop = loop
        self.call: Callable[..., object] | None = callback
        self.arguments = args
        self.context = context
        self.time = 0.0

    def cancel(self) -> None:
        self.call = None
        self.arguments = ()
        self.context = None

    def cancelled(self) -> bool:
        return self.call is None

    def when(self) -> float:
        return self.time

    def __repr__(self) -> str:
        return f"NodeHandle({self.call!r})"

    def fire(self) -> None:
        """Its time has come."""
        loop = self.node_loop
        if self.call is None or not loop.alive:
            return
        if loop.paused:
            loop.held.append(self)
            return
        loop.ready.appendleft(self)
        loop.run_event(1)


class Turn:
    """The event at which a loop runs what is ready."""

    __slots__ = ("_loop",)

    def __init__(self, loop: NodeLoop) -> None:
        self._loop = loop

    def fire(self) -> None:
        self._loop.turn()


class NodeLoop(asyncio.AbstractEventLoop):
    """The loop of one process."""

    def __init__(self, timeline: Timeline, name: str, rng: random.Random) -> None:
        self.timeline = timeline
        self.name = name
        self.alive = True
        self.paused = False
        self.in_event = False
        """Whether it runs just now; at the end of the event what is ready has its turn."""
        self.turn_us_max = TURN_US_MAX
        self.held: list[NodeHandle] = []
        self.watch: Callable[[], None] | None = None
        self.on_error: Callable[[str, BaseException | None], None] = lambda message, error: None
        self._random = rng.random
        self.ready: deque[NodeHandle] = deque()
        self._turn = Turn(self)
        self._turn_is_due = False
        self._epoch_us = timeline.now_us
        self._epoch_local = 1000.0
        self._rate = 1.0

    # -- time

    def time(self) -> float:
        return self._epoch_local + (self.timeline.now_us - self._epoch_us) * self._rate / SECOND_US

    def set_rate(self, rate: float) -> None:
        """From now on this process's monotonic clock gains or loses; 1.0 is right."""
        self._epoch_local, self._epoch_us, self._rate = self.time(), self.timeline.now_us, rate

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> NodeHandle:
        handle = NodeHandle(self, callback, args, context)
        if self.alive:
            self.ready.append(handle)
            if not self.in_event and not self._turn_is_due:
                self._want_turn()
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> NodeHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> NodeHandle:
        handle = NodeHandle(self, callback, args, context)
        handle.time = when
        if self.alive:
            # Rounded up: a timer that comes a microsecond early finds that nothing is due, and spins.
            wait_us = int((when - self._epoch_local) * SECOND_US / self._rate) + 1
            self.timeline.at(self._epoch_us + wait_us, handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> NodeHandle:
        return self.call_soon(callback, *args, context=context)

    def enter(self, callback: Callable[..., object], *args: Any) -> None:
        """An event from outside, now: runs in this process if that lives, later if it is paused."""
        if self.alive:
            NodeHandle(self, callback, args, None).fire()

    # -- what asyncio asks for

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.alive:
            self.on_error(str(context.get("message")), context.get("exception"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    # -- the process

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of this process, begun from outside of it; if it fails somebody hears of it."""
        task = asyncio.Task(work, loop=self)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.call_exception_handler({"message": f"{task.get_name()} failed", "exception": error})

    def turn(self) -> None:
        """A turn that came later."""
        if not self.alive:
            return
        self._turn_is_due = False
        if not self.paused:
            self.run_event(len(self.ready))

    def run_event(self, count: int) -> None:
        """Run the first callbacks that are ready, then what they made ready, turn by turn, until one comes later."""
        _set_running_loop(self)
        self.in_event = True
        ready, timeline = self.ready, self.timeline
        while True:
            timeline.events += count
            while count and ready:  # A kill in the middle leaves none.
                count -= 1
                handle = ready.popleft()
                callback = handle.call
                if callback is None:
                    continue
                try:
                    if handle.context is None:
                        callback(*handle.arguments)
                    else:
                        handle.context.run(callback, *handle.arguments)
                except Exception as error:
                    self.call_exception_handler({"message": "in a callback", "exception": error})
                except BaseException:
                    if self.alive:
                        raise  # A killed process ends in the middle of what it did, which is this.
            count = len(ready)
            if not count or self._turn_is_due or not self.alive:
                break
            if self.turn_us_max > TURN_US_MAX or self._random() < LATER_SHARE:
                self._want_turn()
                break
        self.in_event = False
        _set_running_loop(None)
        if self.watch is not None:
            self.watch()

    def _want_turn(self) -> None:
        self._turn_is_due = True
        self.timeline.after(1 + int(self._random() * self.turn_us_max), self._turn)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on: what fell due meanwhile happens now, in its order."""
        self.paused = False
        held, self.held = self.held, []
        self.ready.extend(held)
        if self.ready and not self._turn_is_due:
            self._want_turn()

    def kill(self) -> None:
        """End it where it stands."""
        self.alive = False
        self.ready.clear()
        self.held.clear()
