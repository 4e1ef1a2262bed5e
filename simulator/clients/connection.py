"""A client's connection to one broker: requests go out, answers come back in order, or the connection is gone."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.api.table import APIS
from ottla.wire.headers import parse_response_header, request_header
from ottla.wire.schema import Message, decode, encode
from simulator.network import End, HostNetwork

if TYPE_CHECKING:
    from ottla.runtime.network import PeerError
    from simulator.node_loop import NodeLoop

R = TypeVar("R", bound=Message)

VERSIONS: Final = {api.key: (api.min_version, api.max_version) for api in APIS}


class Gone(Exception):
    """No answer came: whether the broker did what was asked is unknown."""


class ClientConnection:
    """Opened by `open`; unusable after the first failure."""

    __slots__ = ("_client_id", "_correlation_id", "_end", "_loop", "_owed", "is_open")

    def __init__(self, loop: NodeLoop, client_id: str) -> None:
        self._loop = loop
        self._client_id = client_id
        self._end: End | None = None
        self._correlation_id = 0
        self._owed: deque[tuple[int, int, int, asyncio.Future[tuple[int, memoryview]]]] = deque()
        self.is_open = False

    @classmethod
    async def open(cls, network: HostNetwork, loop: NodeLoop, client_id: str, host: str, port: int) -> ClientConnection:
        """PeerError if nobody is there."""
        connection = cls(loop, client_id)
        connection._end = await network.connect(host, port, connection)
        connection.is_open = True
        return connection

    def begin(self, api_key: int, version: int, body: bytes) -> asyncio.Future[tuple[int, memoryview]]:
        """Send a request; the future gives where the answer's body begins, and the answer."""
        answer: asyncio.Future[tuple[int, memoryview]] = self._loop.create_future()
        if not self.is_open or self._end is None:
            answer.set_exception(Gone("the connection is closed"))
            return answer
        self._correlation_id += 1
        self._owed.append((api_key, version, self._correlation_id, answer))
        self._end.send(request_header(api_key, version, self._correlation_id, self._client_id) + body)
        return answer

    async def ask(self, api_key: int, version: int, body: bytes, *, timeout_ms: int = 30_000) -> tuple[int, memoryview]:
        """The answer, or Gone; after a time-out the connection is given up."""
        return await self.wait(self.begin(api_key, version, body), timeout_ms=timeout_ms)

    async def wait(self, answer: asyncio.Future[tuple[int, memoryview]], *, timeout_ms: int) -> tuple[int, memoryview]:
        if answer.done():
            return answer.result()
        timer = self._loop.call_later(timeout_ms / 1000, self._timed_out, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def _timed_out(self, answer: asyncio.Future[tuple[int, memoryview]]) -> None:
        if not answer.done():
            self.close("timed out")

    async def request(self, message: Message, response: type[R], *, timeout_ms: int = 30_000) -> R:
        """Ask in the newest version that the table of APIs has."""
        schema = message.__schema__
        if schema is None or schema.api_key is None:
            raise TypeError(f"{type(message).__name__} is no request")
        version = VERSIONS[schema.api_key][1]
        body = encode(message, version)
        position, frame = await self.ask(schema.api_key, version, body, timeout_ms=timeout_ms)
        return decode(response, bytes(frame), version, position)

    def close(self, reason: str = "closed") -> None:
        if self._end is not None:
            self._end.close()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self.is_open = False
        owed, self._owed = self._owed, deque()
        for _, _, _, answer in owed:
            if not answer.done():
                answer.set_exception(Gone(reason))
                answer.exception()  # Whoever has stopped waiting need not hear of it.

    def frame_received(self, frame: memoryview) -> None:
        if not self._owed:
            return
        api_key, version, correlation_id, answer = self._owed.popleft()
        found, position = parse_response_header(api_key, version, frame)
        if found != correlation_id:
            raise ValueError(f"the answer to {correlation_id} was due, that to {found} came")
        if not answer.done():
            answer.set_result((position, memoryview(bytes(frame))))

    def stream_closed(self, error: PeerError) -> None:
        self._fail(error.reason)
