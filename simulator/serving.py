"""The server's side of simulated connections: frames to the dispatcher, answers back in the order of the requests.

What `ottla.server.listener` and `ottla.server.answering` do with sockets. Slices of files are read when an answer
leaves, not when it is made, because that is when the kernel reads them: a file that was cut meanwhile breaks the
connection. Whoever wants to see the bytes of a slice (`FileSlice.shown`) is shown them where `ottla.server.output` does
so: if an answer leaves by itself and its slices are in memory. Some are not, which is left to chance.

Which frames of a receive are served together is decided where the real connection has it decided
(`ottla.server.frame_serving`). Two things more are left to chance. A turn, at whose end short Produce requests are
written, ends some milliseconds after its first one: so some turns have several requests, and a process may die before
they are written. And what counts as short differs from connection to connection, since all requests are short here.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.api.deferred import Deferred
from ottla.api.produce_turn import TAKEN_BYTES_MAX, ProduceTurn
from ottla.model.chunks import Chunks, FileSlice
from ottla.model.limits import IN_FLIGHT_REQUESTS_MAX
from ottla.server.answering import OLDER_ANSWERS_MIN
from ottla.server.frame_serving import FrameServing
from ottla.server.receive import LENGTH_BYTES
from ottla.server.turn import Turn
from simulator.network import End, SimulatedNetwork
from simulator.node_loop import NodeLoop

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.runtime.network import PeerError
    from ottla.runtime.remembered_fetches import RememberedFetch
    from ottla.runtime.repeated_fetches import RepeatedFetch
    from ottla.server.dispatch import Dispatch
    from ottla.wire.produce_lead import Lead
    from ottla.wire.produce_shape import RequestShape

TURN_SECONDS_MAX: Final = 0.01
TAKEN_BYTES: Final = (0, 0, 256, TAKEN_BYTES_MAX)
"""How long a Produce request may be that waits for the end of the turn, of which a connection draws one."""
REQUEST_BYTES_MAX: Final = 1 << 20
COLD_SHARE: Final = 0.1
"""How many slices are not in memory when they are to leave."""


class ServingShare:
    """What the connections of a listener share."""

    __slots__ = ("cold_rng", "counts", "dispatch", "listener", "loop", "request_bytes_max", "rng", "services", "turn")

    def __init__(
        self,
        listener: str,
        loop: NodeLoop,
        dispatch: Dispatch,
        services: Services,
        rng: random.Random,
        cold_rng: random.Random,
        counts: Counter[str],
    ) -> None:
        self.listener = listener
        self.loop = loop
        self.dispatch = dispatch
        self.services = services
        self.rng = rng
        self.cold_rng = cold_rng
        """Apart from the other: only slices that are to be shown draw from it."""
        self.counts = counts
        self.request_bytes_max = REQUEST_BYTES_MAX
        self.turn = Turn(ProduceTurn(services, self._turn_begun))

    def _turn_begun(self) -> None:
        self.loop.call_later(self.rng.random() * TURN_SECONDS_MAX, self.turn.end)


class ServedConnection(FrameServing):
    """One client of a broker. A `Peer` to the dispatcher, a `StreamReader` to the network."""

    __slots__ = (
        "_alive",
        "_backlog",
        "_corked",
        "_dispatch",
        "_end",
        "_leaving",
        "_on_close",
        "_owed",
        "_paused",
        "_share",
        "host",
        "listener",
        "principal",
        "produce_lead",
        "produce_shape",
        "remembered_fetch",
        "repeated_fetch",
        "taken",
        "taken_bytes_max",
    )

    _kept = b""
    _share: ServingShare

    def __init__(self, end: End, share: ServingShare, on_close: Callable[[ServedConnection], None]) -> None:
        self.produce_lead: Lead | None = None
        self.produce_shape: RequestShape | None = None
        self.remembered_fetch: RememberedFetch | None = None
        self.repeated_fetch: RepeatedFetch | None = None
        self.taken = 0
        self.taken_bytes_max = share.rng.choice(TAKEN_BYTES)
        self.host = end.peer.host
        self.listener = share.listener
        self.principal = "User:ANONYMOUS"
        self._share = share
        self._end = end
        self._dispatch = share.dispatch
        self._on_close = on_close
        self._alive = True
        self._paused = False
        self._corked = False
        self._leaving: list[Chunks] = []
        """Answers that leave when the last frame of a receive is served."""
        self._owed: deque[Deferred | Chunks] = deque()
        self._backlog = bytearray()
        """Frames for another turn, or of a client that is owed too much."""

    # -- frames

    def bytes_received(self, data: memoryview) -> None:
        if self._backlog or self._paused:
            self._backlog += data
        else:
            self._take(data)

    def _take(self, data: memoryview) -> None:
        self._take_frames(data, len(data))
        self._corked = False
        leaving, self._leaving = self._leaving, []
        for answer in leaving:
            self._send_now(answer, is_alone=False)

    def _serve_together(self, frames: list[memoryview]) -> int:
        self._share.counts["done: requests served together"] += len(frames) if len(frames) > 1 else 0
        return super()._serve_together(frames)

    def _take_backlog(self) -> None:
        if self._alive and not self._paused:
            backlog, self._backlog = self._backlog, bytearray()
            self._take(memoryview(backlog))

    def _postpone(self, frames: memoryview) -> None:
        self._backlog = bytearray(frames)
        if not self._paused:
            self._share.loop.call_soon(self._take_backlog)

    def _keep(self, rest: memoryview, wanted_bytes: int) -> None:
        raise AssertionError("a frame came in pieces")

    def _refuse_length(self, length: int, prefix: bytes) -> None:
        self.refuse(f"a request of {length} bytes")

    # -- answers

    def _take_answer(self, answer: Chunks | Deferred) -> None:
        if not self._alive:
            if isinstance(answer, Deferred):
                answer.cancel()
        elif self._owed or isinstance(answer, Deferred):
            self._owe(answer)
        else:
            self._send(answer)

    def _take_answers(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            end = start + LENGTH_BYTES + int.from_bytes(data[start : start + LENGTH_BYTES])
            self._take_answer([data[start + LENGTH_BYTES : end]])
            start = end

    def _owe(self, answer: Deferred | Chunks) -> None:
        self._owed.append(answer)
        self._paused = self._paused or self._owed_weight() >= IN_FLIGHT_REQUESTS_MAX
        if isinstance(answer, Deferred):
            answer.is_behind = len(self._owed) > OLDER_ANSWERS_MIN
            answer.listen(self._release)

    def _owed_weight(self) -> int:
        return sum(answer.weight if isinstance(answer, Deferred) else 1 for answer in self._owed)

    def _release(self) -> None:
        while self._owed and self._alive:
            head = self._owed[0]
            if isinstance(head, Deferred):
                if not head.done:
                    break
                head = head.chunks
            self._owed.popleft()
            if head:
                self._send(head)
        if self._paused and self._owed_weight() <= IN_FLIGHT_REQUESTS_MAX // 2:
            self._paused = False
            if self._backlog:
                self._share.loop.call_soon(self._take_backlog)

    def _send(self, chunks: Chunks) -> None:
        if self._corked or self._leaving:
            self._leaving.append(chunks)
        else:
            self._send_now(chunks, is_alone=True)

    def _send_now(self, chunks: Chunks, *, is_alone: bool) -> None:
        parts = []
        for chunk in chunks:
            if isinstance(chunk, FileSlice):
                part = chunk.file.pread(chunk.length, chunk.position)
                if len(part) != chunk.length:
                    self.refuse("a file ended before the answer did")
                    return
                if is_alone and chunk.shown is not None and self._share.cold_rng.random() >= COLD_SHARE:
                    self._share.counts["done: records shown to a reading place"] += 1
                    chunk.shown(chunk, memoryview(part))
                parts.append(part)
            else:
                parts.append(bytes(chunk))
        self._end.send(b"".join(parts))

    # -- requests that were taken

    @property
    def produce_skipped(self) -> int:
        """Every request is looked into: a connection lives for few of them here."""
        return 0

    @produce_skipped.setter
    def produce_skipped(self, count: int) -> None:
        pass

    @property
    def produce_lead_skipped(self) -> int:
        return 0

    @produce_lead_skipped.setter
    def produce_lead_skipped(self, count: int) -> None:
        pass

    def settled(self, data: bytes) -> None:
        self.taken -= 1
        self._take_answer([data[LENGTH_BYTES:]])

    def settled_later(self, answer: Deferred) -> None:
        self.taken -= 1
        self._take_answer(answer)

    def serve_taken(self, frame: memoryview) -> None:
        self.taken -= 1
        if self._alive:
            self._serve(frame)

    def taken_failed(self, error: Exception) -> None:
        self.taken = 0
        self.refuse(str(error))

    # -- the end

    def refuse(self, reason: str) -> None:
        """Close the connection because of what was asked."""
        self._end.network.trace.note(self._end.host, "refuse", reason)
        self.close()

    def stream_closed(self, error: PeerError) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._alive = False
        self._backlog.clear()
        self._leaving.clear()
        for answer in self._owed:
            if isinstance(answer, Deferred):
                answer.cancel()
        self._owed.clear()
        self._forget()
        self._on_close(self)

    @property
    def owes(self) -> bool:
        return bool(self._owed or self.taken)

    def close(self) -> None:
        if self._alive:
            self._end.close()
            self._let_go()


class SimulatedListener:
    """A listener of a broker without sockets: the `BoundListener` that `Broker` asks for."""

    def __init__(self, network: SimulatedNetwork, address: tuple[str, int], share: ServingShare) -> None:
        self._host, self.port = address
        self._share = share
        self._network = network
        self.name = share.listener
        self.loop = share.loop
        self.connections: dict[ServedConnection, None] = {}
        self._backlog: list[End] = []
        self._accepting = False

    async def bind(self) -> None:
        self._network.listen(self._host, self.port, self)

    def accept(self) -> None:
        self._accepting = True
        backlog, self._backlog = self._backlog, []
        for end in backlog:
            self.welcome(end)

    def welcome(self, end: End) -> None:
        """A new connection; before `accept` it waits, as in the backlog of a socket."""
        if not self._accepting:
            self._backlog.append(end)
            return
        connection = ServedConnection(end, self._share, self._closed)
        end.reader = connection
        self.connections[connection] = None
        end.receive()

    def _closed(self, connection: ServedConnection) -> None:
        self.connections.pop(connection, None)

    async def close(self, grace_seconds: float = 0.0) -> None:
        if not self.loop.alive:
            return  # What is left of a dead process must not close the door of the next one.
        self._network.unlisten(self._host, self.port)
        for end in self._backlog:
            end.close()
        if any(connection.owes for connection in self.connections):
            # Half of what a patient broker waits: some answers leave, some do not.
            await asyncio.sleep(grace_seconds / 2)
        for connection in list(self.connections):
            connection.close()
