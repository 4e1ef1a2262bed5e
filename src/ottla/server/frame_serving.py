"""The frames of one receive: which are served one by one, which together, and which wait for the end of the turn.

Theory of operation. A receive brings several requests of a client. A short Produce request may be taken: it is served
with those of other clients when the turn of the loop ends (`api.produce_turn`). Longer ones that lie one behind the
other are served together (`api.produce_ahead`). Everything else is dispatched when its turn comes.

There is nothing of sockets here, so that a simulated connection serves its frames by the same rules (`simulator`).

What an editor must keep true: requests are served in their order. Whatever else comes on a connection has to wait until
what was taken from it is settled, and while an older answer is owed nothing is taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from ottla.api.deferred import Deferred
from ottla.api.produce_group import ProduceGroup
from ottla.api.produce_turn import TAKEN_BYTES_MAX
from ottla.model.chunks import Chunks
from ottla.model.limits import REQUEST_HEADER_BYTES_MIN
from ottla.server.dispatch import Dispatch
from ottla.server.receive import LENGTH_BYTES
from ottla.server.turn import Turn

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.runtime.remembered_fetches import RememberedFetch
    from ottla.runtime.repeated_fetches import RepeatedFetch
    from ottla.wire.produce_lead import Lead
    from ottla.wire.produce_shape import RequestShape

FRAMES_PER_TURN_MAX: Final = 32
"""Requests of one client before the others have their turn."""

_length_at: Final = Struct(">i").unpack_from


class FrameShare(Protocol):
    """What all connections of a loop share, as far as frames need it."""

    @property
    def request_bytes_max(self) -> int: ...

    @property
    def services(self) -> Services: ...

    @property
    def turn(self) -> Turn: ...


class FrameServing(ABC):
    """The serving side of a connection: an `Asker`, and a `Peer` to the dispatcher. Whoever inherits has the slots."""

    __slots__ = ()

    host: str
    listener: str
    principal: str
    produce_lead: Lead | None
    produce_lead_skipped: int
    produce_shape: RequestShape | None
    produce_skipped: int
    remembered_fetch: RememberedFetch | None
    repeated_fetch: RepeatedFetch | None
    taken: int
    taken_bytes_max: int = TAKEN_BYTES_MAX
    """A longer Produce request is served with those behind it instead."""
    _alive: bool
    _corked: bool
    """Further frames lie behind the one that is served: its answer need not leave before theirs."""
    _dispatch: Dispatch
    _kept: bytes
    """The begin of a frame, from an earlier receive."""
    _owed: deque[Deferred | Chunks] | None
    _paused: bool

    @property
    @abstractmethod
    def _share(self) -> FrameShare: ...

    @abstractmethod
    def refuse(self, reason: str) -> None:
        """Close because of what the client sent."""

    @abstractmethod
    def settled(self, data: bytes) -> None: ...

    @abstractmethod
    def settled_later(self, answer: Deferred) -> None: ...

    @abstractmethod
    def serve_taken(self, frame: memoryview) -> None: ...

    @abstractmethod
    def taken_failed(self, error: Exception) -> None: ...

    @abstractmethod
    def _take_answer(self, answer: Chunks | Deferred) -> None:
        """Send an answer now if nothing is in its way; else it waits for its turn."""

    @abstractmethod
    def _take_answers(self, data: bytes) -> None:
        """Send answers, each behind its size, now or behind those that wait to be sent; none is owed."""

    @abstractmethod
    def _postpone(self, frames: memoryview) -> None:
        """Go on with these in another turn, out of the way of the next client's input."""

    @abstractmethod
    def _keep(self, rest: memoryview, wanted_bytes: int) -> None:
        """Keep the begin of a frame, of which so many bytes are wanted, until the rest of it is there."""

    @abstractmethod
    def _refuse_length(self, length: int, prefix: bytes) -> None:
        """What came is no request, or one that is too long."""

    def _take_frames(self, view: memoryview, end: int) -> None:
        """Serve the frames that lie in the first `end` bytes, and keep the rest. Whoever calls uncorks."""
        start = stop = 0
        frames_left = FRAMES_PER_TURN_MAX
        bytes_max, taken_bytes_max = self._share.request_bytes_max, self.taken_bytes_max
        while end - start >= LENGTH_BYTES:
            (length,) = _length_at(view, start)
            if not REQUEST_HEADER_BYTES_MIN <= length <= bytes_max:
                self._refuse_length(length, bytes(view[start : start + LENGTH_BYTES]))
                return
            stop = start + LENGTH_BYTES + length
            if stop > end:
                break
            if not frames_left or self._paused:
                self._postpone(view[start:end])
                start = end
                break
            frames_left -= 1
            if (
                length <= taken_bytes_max
                and not view[start + 5]
                and not view[start + 4]
                and not self._owed
                and self._share.turn.produce.take(self, view, start + LENGTH_BYTES, stop)
            ):
                start = stop
                continue
            if self.taken:
                self._share.turn.produce.settle()
            self._corked = end - stop > LENGTH_BYTES  # type: ignore[misc]
            if length > taken_bytes_max and not view[start + 5] and not view[start + 4]:
                frames = [view[start + LENGTH_BYTES : stop]]
                if self._corked:
                    frames = produce_frames(view, start, end, frames_left + 1, bytes_max)
                    frames_left -= len(frames) - 1
                    stop = start + sum(map(len, frames)) + LENGTH_BYTES * len(frames)
                served = self._serve_together(frames)
                if served < len(frames):
                    stop = start + sum(map(len, frames[:served])) + LENGTH_BYTES * served
            else:
                self._serve(view[start + LENGTH_BYTES : stop])
            start = stop
            if not self._alive:
                return
        if start < end or self._kept:
            self._keep(view[start:end], stop - start)

    def _serve(self, frame: memoryview) -> None:
        answer = self._dispatch(self, frame)
        if answer:
            self._take_answer(answer)

    def _serve_together(self, frames: list[memoryview]) -> int:
        """Serve Produce requests whose batches may be written together, whatever is owed for them; how many it was.

        Those that were not written together have to wait if one before them is to be served alone.
        """
        group = ProduceGroup(self._share.services, self, frames)
        try:
            answers = None if self._owed else group.answers(len(frames))
            if answers is not None:
                self._take_answers(answers)
                return len(frames)
            if len(frames) > 1:
                self._corked = True  # type: ignore[misc]
            for number, frame in enumerate(frames):
                answer = group.answer(number)
                if answer is not None:
                    self._take_answer(answer)
                elif number and self._paused and not group.has(number):
                    return number
                else:
                    self._serve(frame)
                if not self._alive:
                    break
        finally:
            group.close()
        return len(frames)

    def _forget(self) -> None:
        """The connection is closed, and what was remembered for it is of no use."""
        if self.remembered_fetch is not None:
            self.remembered_fetch.close()
            self.remembered_fetch = None  # type: ignore[misc]
        self.repeated_fetch = None  # type: ignore[misc]


def produce_frames(view: memoryview, start: int, end: int, count_max: int, bytes_max: int) -> list[memoryview]:
    """The whole frames from `start` on, as far as they are Produce requests that may be served."""
    frames: list[memoryview] = []
    while len(frames) < count_max and end - start >= LENGTH_BYTES + 2:
        (length,) = _length_at(view, start)
        stop = start + LENGTH_BYTES + length
        is_produce = not view[start + 5] and not view[start + 4]
        if not (REQUEST_HEADER_BYTES_MIN <= length <= bytes_max and stop <= end and is_produce):
            break
        frames.append(view[start + LENGTH_BYTES : stop])
        start = stop
    return frames
