"""A server and its clients on loopback, on the loop and the platform that a test runs with."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from ottla.api.context import Services
from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.runtime.metrics import Metrics
from ottla.server.connection import Connection, Dispatch
from ottla.server.dispatch import Peer
from ottla.server.listener import Listener
from ottla.server.platform import Platform
from ottla.server.share import ConnectionLimits, LoopShare

T = TypeVar("T")
WAIT_SECONDS_MAX = 20.0

UNKNOWN_API = 999


class ThreadOffload:
    """Threads, one per call, and a count of the calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self.calls += 1
        return await asyncio.to_thread(function, *args, **kwargs)

    def close(self) -> None:
        pass


def make_services() -> Services:
    """Only what the server itself asks of the services."""
    services = SimpleNamespace(metrics=Metrics(), world=SimpleNamespace(offload=ThreadOffload()))
    return cast(Services, services)


class Server:
    """A listener that is accepting."""

    def __init__(self, listener: Listener, share: LoopShare) -> None:
        self.listener = listener
        self.share = share
        self.metrics = share.metrics

    async def connect(self, **options: int) -> Client:
        return await Client.connect(self.listener.port, **options)

    @property
    def connection(self) -> Connection:
        """The only connection there is."""
        (connection,) = self.listener.connections
        return connection


class Serve:
    """Starts servers; handed to a test as the fixture `serve`."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    @contextlib.asynccontextmanager
    async def __call__(
        self,
        dispatch: Dispatch,
        limits: ConnectionLimits | None = None,
        *,
        services: Services | None = None,
        send_buffer_bytes: int = -1,
    ) -> AsyncIterator[Server]:
        share = LoopShare(services or make_services(), limits or ConnectionLimits(), self.platform)
        listener = Listener("PLAINTEXT", "127.0.0.1", 0, dispatch, share, send_buffer_bytes=send_buffer_bytes)
        await listener.start()
        try:
            yield Server(listener, share)
        finally:
            await listener.close()
            await share.close()


class Client:
    """A client that sends and reads exactly what a test says."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, port: int, *, receive_buffer_bytes: int = 0) -> Client:
        connected = socket.socket()
        connected.setblocking(False)
        if receive_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
        except OSError:
            connected.close()
            raise
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connected)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Go without goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def ask(self, *bodies: bytes) -> None:
        """Send requests, all in one go."""
        await self.send(b"".join(map(frame, bodies)))

    async def read(self, count: int) -> bytes:
        """Exactly so many bytes; fewer if the server closes."""
        data = bytearray()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(data) < count:
                part = await self._loop.sock_recv(self.socket, min(count - len(data), 1 << 20))
                if not part:
                    break
                data += part
        return bytes(data)

    async def answer(self) -> bytes:
        (length,) = struct.unpack(">i", await self.read(4))
        return await self.read(length)

    async def answers(self, count: int) -> list[bytes]:
        return [await self.answer() for _ in range(count)]

    async def is_closed(self) -> bool:
        """Wait until the server has closed; False if it says something instead."""
        try:
            return await self.read(1) == b""
        except ConnectionResetError:
            return True


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(_: Peer, request: memoryview) -> Chunks:
    """Answers each request with itself."""
    return [bytes(request)]


def numbered(number: int, size: int = 8) -> bytes:
    """A request that is told from others, and is none that a connection knows."""
    return struct.pack(">hhi", UNKNOWN_API, 0, number) + b"." * (size - 8)


class Answers:
    """Answers that a test completes when it likes, by the number of the request."""

    def __init__(self) -> None:
        self.owed: dict[int, Deferred] = {}
        self.cancelled: list[int] = []

    def dispatch(self, _: Peer, request: memoryview) -> Deferred:
        (number,) = struct.unpack_from(">4xi", request)
        self.owed[number] = Deferred(lambda: self.cancelled.append(number))
        return self.owed[number]

    def complete(self, *numbers: int) -> None:
        for number in numbers:
            self.owed[number].complete([numbered(number)])


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is so."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what the test waits for did not happen")
        await asyncio.sleep(0.001)
