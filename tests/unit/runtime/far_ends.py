"""The other end of a stream, for tests: real sockets on this machine that behave as they are told."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ottla.runtime.network import PeerError
from ottla.wire.headers import parse_request_header, response_header
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.schema import encode

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answering = Callable[[int, int, memoryview], Awaitable[bytes | None]]


@asynccontextmanager
async def far_end(behaviour: Behaviour, port: int = 0) -> AsyncIterator[int]:
    """A server that gives each connection to `behaviour`; its port."""
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await behaviour(reader, writer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 30)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def broker_like(versions: dict[int, tuple[int, int]], answering: Answering) -> Behaviour:
    """Says which versions it serves, and answers the rest: (key, version, body) -> body, or None to close."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await read_frame(reader)
            key, version, correlation_id, _, position = parse_request_header(frame)
            if key == 18:
                served = [ApiVersion(api_key=k, min_version=v[0], max_version=v[1]) for k, v in versions.items()]
                body: bytes | None = encode(ApiVersionsResponse(api_keys=served), version)
            else:
                body = await answering(key, version, memoryview(frame)[position:])
            if body is None:
                return
            writer.write(framed(response_header(key, version, correlation_id) + body))

    return behave


class Listening:
    """A stream's handler that remembers; `closed` is told when it is over."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed: asyncio.Future[PeerError] = asyncio.get_running_loop().create_future()
        self._came = asyncio.Event()

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self._came.set()

    def stream_closed(self, error: PeerError) -> None:
        self.closed.set_result(error)

    async def until(self, count: int) -> list[bytes]:
        while len(self.frames) < count:
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), 10)
        return self.frames
