"""The server's side of simulated connections: frames to the dispatcher, answers back in the order of the requests.

What `ottla.server.listener` and `ottla.server.connection` do with sockets. Slices of files are read when an answer
leaves, not when it is made, because that is when the kernel reads them: a file that was cut meanwhile breaks the
connection.

Short Produce requests are gathered as the real connection does it (`ottla.api.produce_turn`). Frames come one by one
here, so a turn ends by chance, some milliseconds after its first one: some turns have several requests, and a process
may die before they are written.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.api.deferred import Deferred
from ottla.api.produce_turn import TAKEN_BYTES_MAX, ProduceTurn
from ottla.model.chunks import Chunks, FileSlice
from ottla.model.limits import IN_FLIGHT_REQUESTS_MAX
from ottla.server.answering import OLDER_ANSWERS_MIN
from simulator.network import End, SimulatedNetwork
from simulator.node_loop import NodeLoop

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.runtime.network import PeerError
    from ottla.server.dispatch import Dispatch
    from ottla.wire.produce_shape import RequestShape

TURN_SECONDS_MAX: Final = 0.01
LENGTH_BYTES: Final = 4


class ServedConnection:
    """One client of a broker. A `Peer` to the dispatcher, a `StreamHandler` to the network."""

    __slots__ = (
        "_dispatch",
        "_end",
        "_on_close",
        "_owed",
        "_produce",
        "_waiting",
        "host",
        "listener",
        "principal",
        "produce_shape",
        "taken",
    )

    def __init__(
        self,
        end: End,
        listener: str,
        dispatch: Dispatch,
        produce: ProduceTurn,
        on_close: Callable[[ServedConnection], None],
    ) -> None:
        self.produce_shape: RequestShape | None = None
        self.taken = 0
        self._produce = produce
        self.host = end.peer.host
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self._end = end
        self._dispatch = dispatch
        self._on_close = on_close
        self._owed: deque[Deferred | Chunks] = deque()
        self._waiting: deque[memoryview] = deque()
        """Frames of a client that is owed too much."""

    def frame_received(self, frame: memoryview) -> None:
        if len(self._owed) >= IN_FLIGHT_REQUESTS_MAX or self._waiting:
            self._waiting.append(memoryview(bytearray(frame)))
        else:
            self._take(frame)

    def _take(self, frame: memoryview) -> None:
        is_short_produce = len(frame) <= TAKEN_BYTES_MAX and not frame[0] and not frame[1]  # key 0
        if is_short_produce and not self._owed and self._produce.take(self, frame, 0, len(frame)):
            return
        if self.taken:
            self._produce.settle()
        self._serve(frame)

    def _serve(self, frame: memoryview) -> None:
        answer = self._dispatch(self, frame)
        if not answer or not self._end.open:
            return
        if self._owed:
            self._owe(answer)
        elif isinstance(answer, list):
            self._send(answer)
        else:
            self._owe(answer)

    def _owe(self, answer: Deferred | Chunks) -> None:
        self._owed.append(answer)
        if isinstance(answer, Deferred):
            answer.is_behind = len(self._owed) > OLDER_ANSWERS_MIN
            answer.listen(self._release)

    def _release(self) -> None:
        while self._owed and self._end.open:
            head = self._owed[0]
            if isinstance(head, Deferred):
                if not head.done:
                    return
                head = head.chunks
            self._owed.popleft()
            if head:
                self._send(head)
        while self._waiting and len(self._owed) < IN_FLIGHT_REQUESTS_MAX and self._end.open:
            self._take(self._waiting.popleft())

    def _send(self, chunks: Chunks) -> None:
        parts = []
        for chunk in chunks:
            if isinstance(chunk, FileSlice):
                part = chunk.file.pread(chunk.length, chunk.position)
                if len(part) != chunk.length:
                    self.refuse("a file ended before the answer did")
                    return
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

    def settled(self, data: bytes) -> None:
        self.taken -= 1
        if self._end.open:
            answer: Chunks = [data[LENGTH_BYTES:]]
            if self._owed:
                self._owe(answer)
            else:
                self._send(answer)

    def settled_later(self, answer: Deferred) -> None:
        self.taken -= 1
        if self._end.open:
            self._owe(answer)
            self._release()
        else:
            answer.cancel()

    def serve_taken(self, frame: memoryview) -> None:
        self.taken -= 1
        if self._end.open:
            self._serve(frame)

    def taken_failed(self, error: Exception) -> None:
        self.taken = 0
        self.refuse(str(error))

    def refuse(self, reason: str) -> None:
        """Close the connection because of what was asked."""
        self._end.network.trace.note(self._end.host, "refuse", reason)
        self._end.close()
        self._let_go()

    def stream_closed(self, error: PeerError) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._waiting.clear()
        for answer in self._owed:
            if isinstance(answer, Deferred):
                answer.cancel()
        self._owed.clear()
        self._on_close(self)

    @property
    def owes(self) -> bool:
        return bool(self._owed or self.taken)

    def close(self) -> None:
        if self._end.open:
            self._end.close()
            self._let_go()


class SimulatedListener:
    """A listener of a broker without sockets: the `BoundListener` that `Broker` asks for."""

    def __init__(
        self,
        network: SimulatedNetwork,
        loop: NodeLoop,
        name: str,
        address: tuple[str, int],
        dispatch: Dispatch,
        services: Services,
        rng: random.Random,
    ) -> None:
        host, port = address
        self._rng = rng
        self._produce = ProduceTurn(services, self._turn_begun)
        self.name = name
        self.port = port
        self.loop = loop
        self.connections: dict[ServedConnection, None] = {}
        self._host = host
        self._network = network
        self._dispatch = dispatch
        self._backlog: list[End] = []
        self._accepting = False

    def _turn_begun(self) -> None:
        self.loop.call_later(self._rng.random() * TURN_SECONDS_MAX, self._produce.end)

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
            end.handler = EarlyFrames()
            self._backlog.append(end)
            return
        early = end.handler
        connection = ServedConnection(end, self.name, self._dispatch, self._produce, self._closed)
        end.handler = connection
        self.connections[connection] = None
        if isinstance(early, EarlyFrames):
            for frame in early.frames:
                connection.frame_received(frame)

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


class EarlyFrames:
    """Keeps what a client sends before its connection is accepted."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(memoryview(bytearray(frame)))

    def stream_closed(self, error: PeerError) -> None:
        pass
