"""One connection to another node, and what is owed over it.

Theory of operation. Answers come in the order of the requests. One timer watches over all of them: a request that is
not answered in time ends the connection, and with it the requests behind it.

A conversation is a request whose answers are looked at where they lie, in the turn in which they arrive, and may be
followed by the next question at once: no copy, and no task that has to be woken. It ends with the first answer that
wants more time than that.

What an editor must keep true:
- `_owed` holds one entry per request that was sent, in order, also where nobody waits for the answer any more.
- A link that failed is never used again, and whoever waits hears of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.model.errors import MalformedMessageError
from ottla.runtime.network import PeerError, Stream
from ottla.runtime.peer_targets import Address
from ottla.wire.headers import parse_response_header, request_header

IN_FLIGHT_MAX: Final = 32
"""Requests sent and not answered on one connection; more wait their turn. Brokers stop reading at 64."""
Reply: TypeAlias = Callable[[memoryview], bytes | None]
"""Gets an answer's body, which is gone when it returns; says what to ask next, or None to end the conversation."""


class Owed:
    """A request that was sent."""

    __slots__ = ("answer", "api_key", "correlation_id", "deadline", "reply", "timeout_ms", "version")

    def __init__(
        self, api_key: int, version: int, timeout_ms: int, answer: asyncio.Future[memoryview], reply: Reply | None
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.timeout_ms = timeout_ms
        self.answer = answer
        self.reply = reply
        self.correlation_id = 0
        self.deadline = 0.0


class Link:
    """One connection, and what is owed over it."""

    __slots__ = (
        "_client_id",
        "_crowd",
        "_loop",
        "_next_id",
        "_on_lost",
        "_owed",
        "_stream",
        "_timer",
        "_timer_at",
        "address",
        "failure",
        "name",
        "versions",
    )

    def __init__(self, address: Address, client_id: str, on_lost: Callable[[], None] | None) -> None:
        self.address = address
        self._on_lost = on_lost
        self.name = f"{address[0]}:{address[1]}"
        self.versions: dict[int, tuple[int, int]] = {}
        self.failure: PeerError | None = None
        self._client_id = client_id
        self._next_id = 0
        self._owed: deque[Owed] = deque()
        self._crowd: deque[asyncio.Future[None]] = deque()
        """Who waits until fewer requests are on their way."""
        self._stream: Stream | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        """One for all requests: it goes off when the earliest deadline that it knows of has passed, mostly in vain."""
        self._timer_at = 0.0

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent, before which nobody waits."""
        return len(self._owed) < IN_FLIGHT_MAX and not self._crowd

    async def room(self) -> None:
        """Wait for one's turn to send a request, or for the end of the connection."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._crowd.append(waiter)
        await waiter

    def _let_in(self) -> None:
        """Somebody has their turn: as many as there is room for, or all at the end. Each of them sends at once."""
        room = IN_FLIGHT_MAX - len(self._owed) if self.failure is None else len(self._crowd)
        while self._crowd and room > 0:
            waiter = self._crowd.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1

    def opened(self, stream: Stream) -> None:
        self._stream = stream

    def send(
        self, api_key: int, version: int, body: bytes, timeout_ms: int, reply: Reply | None = None
    ) -> asyncio.Future[memoryview]:
        """The answer's body, when it is there: a copy that may be kept. PeerError, also if that is not in time."""
        if self.failure is not None or self._stream is None:
            raise again(self.failure or PeerError(self.name, "not connected"))
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._send(self._stream, Owed(api_key, version, timeout_ms, answer, reply), body)
        return answer

    def _send(self, stream: Stream, owed: Owed, body: bytes) -> None:
        owed.correlation_id = correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFF_FFFF
        owed.deadline = deadline = self._loop.time() + owed.timeout_ms / 1000
        if self._timer is None or deadline < self._timer_at:
            self._arm(deadline)
        self._owed.append(owed)
        stream.send(request_header(owed.api_key, owed.version, correlation_id, self._client_id) + body)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(deadline, self._expire), deadline

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        waiting = [owed for owed in self._owed if not owed.answer.done()]
        for owed in waiting:
            if owed.deadline <= now:
                self.fail(f"no answer within {owed.timeout_ms} ms")
                return
        if waiting:
            self._arm(min(owed.deadline for owed in waiting))

    def frame_received(self, frame: memoryview) -> None:
        if not self._owed:
            self.fail("it sent an answer to nothing")
            return
        owed = self._owed[0]
        try:
            correlation_id, position = parse_response_header(owed.api_key, owed.version, frame)
        except MalformedMessageError as error:
            self.fail(f"its answer could not be read: {error}")
            return
        if correlation_id != owed.correlation_id:
            self.fail(f"it answered request {correlation_id} where {owed.correlation_id} was next")
            return
        body = None
        if owed.reply is not None and not owed.answer.done():
            # Still owed: should this fall over, or end the connection, whoever waits must hear of it.
            body = owed.reply(frame[position:])
            if self.failure is not None:
                return
        self._owed.popleft()
        if body is not None and self._stream is not None:
            self._send(self._stream, owed, body)
        elif not owed.answer.done():
            owed.answer.set_result(memoryview(bytes(frame[position:])))
        if self._crowd:
            self._let_in()

    def stream_closed(self, error: PeerError) -> None:
        if self._on_lost is not None:
            self._on_lost()
        self._fail(error)

    def fail(self, reason: str) -> None:
        """Give the connection up; everybody who waits hears why."""
        self._fail(PeerError(self.name, reason))

    def _fail(self, error: PeerError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._stream.close()
        self._let_in()
        owed, self._owed = self._owed, deque()
        for item in owed:
            if not item.answer.done():
                item.answer.set_exception(again(error))


def again(error: PeerError) -> PeerError:
    """The same for another waiter: each raises an error of its own."""
    return PeerError(error.address, error.reason, refused=error.refused)
